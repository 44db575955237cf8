// All heads of all layers as small pictures, and the chosen head large.
// The address keeps the view: "#layer.head" or "#layer.head.token".
draw.attention = ({tokens, layers: L, heads: N, levels}) => {
  const bytes = Uint8Array.from(atob(levels), letter => letter.charCodeAt(0));
  const S = tokens.length, MEAN = N, STEP = 20;
  const [LEFT, RIGHT, WIDTH] = narrow.matches
    ? [115, 215, widthUpTo(360)] : [150, 330, 480];
  const state = {layer: L - 1, head: MEAN, token: null};
  const shown = tokens.map(isolated);
  const title = html('h3');
  const picture = drawing(WIDTH, STEP * S, 'Attention of the chosen head', []);
  const grid = html('table', {class: 'heads'}), buttons = new Map();
  const name = head => head === MEAN ? 'mean' : String(head);
  const key = (layer, head) => layer + '.' + head;

  // Matrix [S, S] of a head, 0 to 1. Head N is the mean of all heads of its layer.
  const cache = new Map();
  function matrix(layer, head) {
    if (!cache.has(key(layer, head))) {
      const found = new Float32Array(S * S);
      const [first, last] = head === MEAN ? [0, N - 1] : [head, head];
      for (let h = first; h <= last; h++) {
        const start = (layer * N + h) * S * S;
        for (let i = 0; i < S * S; i++) found[i] += bytes[start + i] / 255 / (last - first + 1);
      }
      cache.set(key(layer, head), found);
    }
    return cache.get(key(layer, head));
  }

  function thumbnail(layer, head) {
    const canvas = html('canvas', {width: S, height: S});
    const context = canvas.getContext('2d'), image = context.createImageData(S, S);
    const color = getComputedStyle(document.documentElement).getPropertyValue('--fill').split(',');
    matrix(layer, head).forEach((value, i) => {
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = Number(color[c]);
      image.data[4 * i + 3] = 255 * Math.sqrt(value);  // the root makes small fractions visible
    });
    context.putImageData(image, 0, 0);
    return canvas;
  }

  function makeGrid() {
    const heads = Array.from({length: N + 1}, (_, head) => head);
    grid.style.setProperty('--thumb', (N > 8 ? 42 : 60) + 'px');
    grid.insertRow().append(html('th', {}, 'head'),
      ...heads.map(head => html('th', {scope: 'col'}, name(head))));
    for (let layer = L - 1; layer >= 0; layer--) {
      grid.insertRow().append(html('th', {scope: 'row'}, `layer ${layer}`), ...heads.map(head => {
        const button = html('button', {'data-key': key(layer, head),
          title: `layer ${layer}, head ${name(head)}`}, thumbnail(layer, head));
        button.onclick = () => { Object.assign(state, {layer, head}); choose(); };
        buttons.set(key(layer, head), button);
        return html('td', {'data-head': name(head)}, button);
      }));
    }
  }

  function drawHead(focus) {
    const values = matrix(state.layer, state.head);
    picture.replaceChildren();
    shown.forEach((token, from) => {
      const y = STEP * from + STEP / 2;
      if (focus !== null) {
        const share = values[focus * S + from];
        picture.append(svg('rect', {class: 'token', x: RIGHT + 2, y: y - STEP / 2 + 1, rx: 3,
          width: WIDTH - RIGHT - 2, height: STEP - 2, 'fill-opacity': share * 0.75}));
        if (share >= 0.005) {
          picture.append(svg('text', {class: 'faint', x: WIDTH - 4, y: y + 4, 'text-anchor': 'end'},
            (100 * share).toFixed(0) + '%'));
        }
      }
      for (let to = 0; to < S; to++) {
        const share = values[from * S + to];
        if (share < 0.02 || (focus !== null && focus !== from)) continue;
        picture.append(svg('line', {x1: LEFT, y1: y, x2: RIGHT, y2: STEP * to + STEP / 2,
          'stroke-width': 0.6 + 2 * share,
          'stroke-opacity': (focus === null ? 0.06 : 0.3) + 0.7 * share}));
      }
      const left = svg('text', {x: LEFT - 6, y: y + 4, 'text-anchor': 'end',
        'font-weight': focus === from ? 'bold' : 'normal'}, token);
      left.onmouseenter = () => { if (state.token === null) drawHead(from); };
      left.onclick = () => { state.token = state.token === from ? null : from; choose(); };
      picture.append(left, svg('text', {x: RIGHT + 6, y: y + 4}, token));
    });
  }

  function choose() {
    const parts = [state.layer, state.head];
    if (state.token !== null) parts.push(state.token);
    history.replaceState(null, '', '#' + parts.join('.'));
    for (const [at, button] of buttons) {
      button.setAttribute('aria-pressed', at === key(state.layer, state.head));
    }
    title.textContent = `Layer ${state.layer}, ` +
      (state.head === MEAN ? 'mean of all heads' : `head ${state.head}`);
    drawHead(state.token);
  }

  function fromAddress() {
    const [layer, head, token] = location.hash.slice(1).split('.').map(Number);
    if (layer >= 0 && layer < L && head >= 0 && head <= N) {
      Object.assign(state, {layer, head, token: token >= 0 && token < S ? token : null});
    }
  }

  const whole = html('div', {class: 'attention'}, grid, html('div', {class: 'head'}, title, picture));
  picture.onmouseleave = () => { if (state.token === null) drawHead(null); };
  whole.onkeydown = event => {
    const steps = {ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    state.layer = Math.min(L - 1, Math.max(0, state.layer + step[0]));
    state.head = Math.min(N, Math.max(0, state.head + step[1]));
    choose();
    buttons.get(key(state.layer, state.head)).focus();
  };
  window.onhashchange = () => { fromAddress(); choose(); };
  fromAddress();
  makeGrid();
  choose();
  return whole;
};
