// The page, made from the JSON in it: title, figures, and sections of parts.
const data = JSON.parse(document.getElementById('data').textContent);
const LONG = 30;  // letters of a text that may break inside a word

draw.paragraph = ({text}) => html('p', {}, text);

function tableOf(attributes, header, rows) {
  return html('div', {class: 'scroll'}, html('table', attributes,
    html('thead', {}, html('tr', {}, ...header.map(name => html('th', {scope: 'col'}, name)))),
    html('tbody', {}, ...rows.map(cells => html('tr', {}, ...cells)))));
}

// On a phone a table of texts has each cell in its own line, after the name of its column.
draw.table = ({header, rows, texts}) => tableOf(texts ? {class: 'texts'} : {}, header,
  rows.map(row => row.map((value, column) => {
    const kind = typeof value === 'number' ? 'number' : value.length > LONG ? 'text' : '';
    return html('td', {class: kind, 'data-name': header[column]}, figure(value));
  })));

// Counts, darker where a cell has a large fraction of its row.
draw.matrix = ({rows, columns, counts}) => tableOf({}, ['label \\ predicted', ...columns],
  rows.map((name, row) => {
    const total = Math.max(1, counts[row].reduce((a, b) => a + b, 0));
    return [html('th', {scope: 'row'}, name), ...counts[row].map(count => {
      const cell = html('td', {class: 'cell'}, String(count),
        html('small', {}, Math.round(100 * count / total) + '%'));
      cell.style.setProperty('--share', count / total);
      return cell;
    })];
  }));

// Tokens in the color of what they count for.
draw.tokens = ({tokens, values}) => {
  const strongest = Math.max(...values.map(Math.abs), 1e-12);
  const words = tokens.map((token, index) => {
    const word = html('bdi', {title: signed(values[index], 4)}, token);
    word.style.setProperty('--color', values[index] > 0 ? FOR : AGAINST);
    word.style.setProperty('--share', 45 * Math.abs(values[index]) / strongest + '%');
    return word;
  });
  return html('p', {class: 'tokens'}, ...words.flatMap(word => [word, ' ']));
};

function render() {
  const section = ({title, note, wide, parts}) => html('section', wide ? {class: 'wide'} : {},
    html('h2', {}, title), ...(note ? [html('p', {class: 'faint'}, note)] : []),
    ...parts.map(part => draw[part.kind](part)));
  page.replaceChildren(
    html('h1', {}, data.title),
    html('dl', {}, ...data.figures.map(([name, value]) =>
      html('div', {}, html('dt', {}, name), html('dd', {}, figure(value))))),
    html('main', {}, ...data.sections.map(section)));
}

// Charts are as wide as a narrow page, so they are drawn again if its width changes.
let drawn = widthUpTo(WIDEST);
window.addEventListener('resize', () => {
  if (drawn === widthUpTo(WIDEST)) return;
  drawn = widthUpTo(WIDEST);
  render();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', render);
render();
