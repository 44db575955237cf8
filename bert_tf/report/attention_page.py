"""The parts of the page of visualize: tokens that speak for an answer, scores, attention heads.

They are `Section`s of `report/page.py`, with styles and a script of their own inside the page.

Shapes: S sequence, N heads, L layers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np

from bert_tf.prediction.explanation import Attributions
from bert_tf.report.charts import escape, figure
from bert_tf.report.page import Section

# Blue and orange, which nearly everyone tells apart. page.py has their values.
_FOR, _AGAINST = "var(--color-0)", "var(--color-1)"
_SPECIAL = ("[CLS]", "[SEP]", "[PAD]")

STYLE = """
.tokens { line-height: 2.1; max-width: 75ch; }
.tokens bdi { padding: .15rem .2rem; border-radius: 3px; white-space: nowrap; }
.scores { overflow-x: auto; }
.scores svg { max-width: none; }
#attention { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; align-items: flex-start; }
#grid { border-collapse: separate; border-spacing: 3px; font-size: .75rem; max-width: 100%; }
#grid th { border: 0; padding: 0 .2rem; color: var(--faint); font-weight: normal;
  vertical-align: middle; white-space: nowrap; }
#grid th[scope=col] { text-align: center; } #grid th:first-child { text-align: right; }
#grid td { border: 0; padding: 0; }
#grid button { padding: 0; border: 1px solid var(--line); background: none; display: block;
  cursor: pointer; line-height: 0; }
#grid button:hover { border-color: var(--ink); }
#grid button[aria-pressed=true] { outline: 2px solid rgb(var(--fill)); }
#grid canvas { width: var(--thumb); height: var(--thumb); image-rendering: pixelated; }
#head { flex: 1 1 26rem; min-width: min(20rem, 100%); } #head h3 { font-size: 1rem; margin: 0 0 .3rem; }
#head text { cursor: pointer; } #head svg { max-width: 100%; }
#head rect.token { fill: rgb(var(--fill)); } #head line { stroke: var(--color-0); }
@media (max-width: 640px) {
  #head { order: -1; }
  #head svg { font-size: 12px; }
  #grid tbody { display: block; } #grid tr:first-child { display: none; }
  #grid tr { display: flex; flex-wrap: wrap; gap: 3px; margin-bottom: .5rem; }
  #grid th { flex-basis: 100%; text-align: start !important; }
  #grid td::before { content: attr(data-head); display: block; color: var(--faint); } }
"""


def attribution_section(tokens: Sequence[str], found: Attributions, output: str) -> Section:
    """The tokens of the input, coloured by what they count for an output.

    Args:
        output: what it is, such as "log-odds of good".
    """
    strongest = max(float(np.abs(found.values).max()), 1e-12)
    parts = []
    for token, value in zip(tokens, found.values, strict=True):
        color = _FOR if value > 0 else _AGAINST
        share = abs(value) / strongest
        parts.append(
            f'<bdi style="background: color-mix(in srgb, {color} {share * 45:.1f}%, transparent)" '
            f'title="{value:+.4f}">{escape(token)}</bdi>'
        )
    largest = np.argsort(-np.abs(found.values), kind="stable")[:12]
    order = [i for i in largest if found.values[i]]
    rows = [(f"{isolated(tokens[i])} ({i})", float(found.values[i])) for i in order]
    note = (
        f"Integrated gradients of the {output}: blue speaks for it, orange against. All values add up "
        f"to {found.values.sum():+.3f}, from {found.baseline:.3f} with [MASK] in the place of every "
        f"word to {found.output:.3f} (what the sum is off by: {found.gap:+.4f}). Point at a token for "
        "its value."
    )
    body = f'<p class="tokens">{" ".join(parts)}</p>{_signed_bars(rows)}'
    return Section("What each token counts for", body, note, wide=True)


def isolated(text: str) -> str:
    """Return `text` so that its direction does not change that of its neighbours, in SVG too."""
    return f"\u2068{text}\u2069"


def _signed_bars(rows: Sequence[tuple[str, float]]) -> str:
    """Bars to both sides of zero."""
    step, left, half, ends = 22, 150, 170, 70
    widest = max((abs(value) for _, value in rows), default=1.0)
    middle = left + ends + half
    parts = [f'<line x1="{middle}" x2="{middle}" y1="0" y2="{step * len(rows)}" class="grid"/>']
    for index, (name, value) in enumerate(rows):
        width, y = abs(value) / widest * half, step * index + 3
        x = middle if value > 0 else middle - width
        end = middle + width + 6 if value > 0 else middle - width - 6
        anchor = "start" if value > 0 else "end"
        color = _FOR if value > 0 else _AGAINST
        parts.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="16" fill="{color}"/>'
            f'<text x="{end:.1f}" y="{y + 13}" text-anchor="{anchor}">{value:+.3f}</text>'
        )
    width, height = middle + half + ends, step * len(rows)
    return _svg(width, height, "".join(parts), "What the strongest tokens count for")


def span_section(
    tokens: Sequence[str],
    start: np.ndarray,
    end: np.ndarray,
    chosen: tuple[int, int] | None,
) -> Section:
    """The probabilities of each token to be the first or the last of the answer.

    Args:
        start, end: float [S], of this window; each adds up to 1.
        chosen: first and last position of the answer; None where there is none here.
    """
    step, left, height = 20, 40, 110
    below = 16 + 7 * max(map(len, tokens))  # the tokens stand upright
    width = left + step * len(tokens) + 20
    parts = []
    if chosen is not None:
        x, wide = left + step * chosen[0], step * (chosen[1] - chosen[0] + 1)
        parts.append(
            f'<rect x="{x}" y="0" width="{wide}" height="{height + below}" fill="{_FOR}" '
            'fill-opacity="0.12"/>'
        )
    for value in (0.0, 0.5, 1.0):
        y = 10 + (1 - value) * (height - 10)
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y}" y2="{y}" class="grid"/>'
            f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{figure(value)}</text>'
        )
    for index, token in enumerate(tokens):
        x = left + step * index
        for place, (name, values) in enumerate((("start", start), ("end", end))):
            tall = float(values[index]) * (height - 10)
            title = f"{isolated(token)}: {name} {values[index]:.4f}"
            parts.append(
                f'<rect x="{x + 2 + 8 * place}" y="{height - tall:.1f}" width="8" height="{tall:.1f}" '
                f'fill="{(_FOR, _AGAINST)[place]}"><title>{escape(title)}</title></rect>'
            )
        parts.append(
            f'<text transform="translate({x + 14} {height + 8}) rotate(-90)" text-anchor="end">'
            f"{escape(isolated(token))}</text>"
        )
    chart = _svg(width, height + below, "".join(parts), "Start and end of the answer")
    note = (
        "Probability of each token to be the first (blue) and the last (orange) of the answer, in this "
        "window. The shaded tokens are the answer."
    )
    return Section(
        "Where the answer starts and ends", f'<div class="scores">{chart}</div>', note, True
    )


def opening_head(tokens: Sequence[str], probabilities: np.ndarray) -> list[int]:
    """Return layer and head whose words point most clearly at words of their own, not beside them.

    Other heads often point at one token from everywhere, such as [CLS], or at the word before.

    Args:
        probabilities: float [L, N, S, S].
    """
    is_word = np.array([t not in _SPECIAL and any(map(str.isalnum, t)) for t in tokens])
    positions = np.arange(len(tokens))
    apart = np.outer(is_word, is_word) & (np.abs(positions[:, None] - positions) > 1)
    beyond_mean = probabilities - probabilities.mean(axis=2, keepdims=True)
    found = (beyond_mean * apart).max(axis=3).sum(axis=2)
    return [int(index) for index in np.unravel_index(found.argmax(), found.shape)]


def attention_section(tokens: Sequence[str], probabilities: np.ndarray) -> Section:
    """All heads of all layers as small pictures, and the chosen one large.

    Args:
        probabilities: float [L, N, S, S]; the page has them in 255 steps.
    """
    num_layers, num_heads = probabilities.shape[:2]
    levels = np.round(np.clip(probabilities, 0, 1) * 255).astype(np.uint8)
    data = {
        "tokens": list(tokens),
        "layers": num_layers,
        "heads": num_heads,
        "opening": opening_head(tokens, probabilities),
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
    # "</" would end the script, wherever it stands in it.
    values = json.dumps(data).replace("</", "<\\/")
    note = (
        "Each small picture is a head: a row for each token, stronger where it takes more from the "
        "token of that column. Choose one to see it large: lines go from a token on the left to those "
        "on the right that it takes from. Point at a token to see its lines alone, click to hold it. "
        "The arrow keys go from head to head. The page opens on the head whose words point most "
        "clearly each at another word, not the one beside it."
    )
    body = (
        f'<script type="application/json" id="data">{values}</script>'
        "<noscript>This part needs JavaScript.</noscript>"
        '<div id="attention"><table id="grid"></table><div id="head"></div></div>'
    )
    return Section("Attention", body, note, wide=True)


def _svg(width: float, height: float, content: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{content}</svg>'
    )


# The state is in the address, "#layer.head" or "#layer.head.token", so that a view can be kept.
SCRIPT = r"""
const data = JSON.parse(document.getElementById('data').textContent);
const bytes = Uint8Array.from(atob(data.levels), c => c.charCodeAt(0));
const S = data.tokens.length, L = data.layers, N = data.heads, MEAN = N;
const SVG = 'http://www.w3.org/2000/svg', STEP = 20;
const [LEFT, RIGHT, WIDTH] = innerWidth <= 640 ? [115, 215, 360] : [150, 330, 480];
const state = {layer: data.opening[0], head: data.opening[1], token: null};
// Isolated, so that a piece that is written from right to left leaves its sign of continuation.
const shown = data.tokens.map(token => '\u2068' + token + '\u2069');

// Matrix [S, S] of a head, 0 to 1; head N is the mean of all of its layer.
const cache = new Map();
function matrix(layer, head) {
  const key = layer * (N + 1) + head;
  if (!cache.has(key)) {
    const found = new Float32Array(S * S);
    const first = head === MEAN ? 0 : head, last = head === MEAN ? N - 1 : head;
    for (let h = first; h <= last; h++) {
      const start = (layer * N + h) * S * S;
      for (let i = 0; i < S * S; i++) found[i] += bytes[start + i] / 255 / (last - first + 1);
    }
    cache.set(key, found);
  }
  return cache.get(key);
}

function thumbnail(layer, head) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = S;
  const context = canvas.getContext('2d'), image = context.createImageData(S, S);
  const fill = getComputedStyle(document.documentElement).getPropertyValue('--fill').split(',');
  matrix(layer, head).forEach((value, i) => {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = Number(fill[c]);
    image.data[4 * i + 3] = 255 * Math.sqrt(value);  // the root, so that small shares can be seen
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function name(head) { return head === MEAN ? 'mean' : String(head); }

function makeGrid() {
  const grid = document.getElementById('grid');
  grid.style.setProperty('--thumb', (N > 8 ? 42 : 60) + 'px');
  const top = grid.insertRow();
  top.innerHTML = '<th>head</th>' + Array.from({length: N + 1}, (_, h) =>
    `<th scope="col">${name(h)}</th>`).join('');
  for (let layer = L - 1; layer >= 0; layer--) {
    const row = grid.insertRow();
    row.innerHTML = `<th scope="row">layer ${layer}</th>`;
    for (let head = 0; head <= N; head++) {
      const button = document.createElement('button');
      button.dataset.key = layer + '.' + head;
      button.title = `layer ${layer}, head ${name(head)}`;
      button.append(thumbnail(layer, head));
      button.onclick = () => { Object.assign(state, {layer, head}); choose(); };
      const cell = row.insertCell();
      cell.dataset.head = name(head);
      cell.append(button);
    }
  }
}

function element(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(focus) {
  const values = matrix(state.layer, state.head);
  const svg = document.querySelector('#head svg');
  svg.replaceChildren();
  shown.forEach((token, f) => {
    const y = STEP * f + STEP / 2;
    if (focus !== null) {
      const share = values[focus * S + f];
      svg.append(element('rect', {class: 'token', x: RIGHT + 2, y: y - STEP / 2 + 1, rx: 3,
        width: WIDTH - RIGHT - 2, height: STEP - 2, 'fill-opacity': share * 0.75}));
      if (share >= 0.005) svg.append(element('text', {class: 'faint', x: WIDTH - 4, y: y + 4,
        'text-anchor': 'end'}, (100 * share).toFixed(0) + '%'));
    }
    for (let t = 0; t < S; t++) {
      const share = values[f * S + t];
      if (share < 0.02 || (focus !== null && focus !== f)) continue;
      svg.append(element('line', {x1: LEFT, y1: y, x2: RIGHT, y2: STEP * t + STEP / 2,
        'stroke-width': 0.6 + 2 * share,
        'stroke-opacity': (focus === null ? 0.06 : 0.3) + 0.7 * share}));
    }
    const from = element('text', {x: LEFT - 6, y: y + 4, 'text-anchor': 'end',
      'font-weight': focus === f ? 'bold' : 'normal'}, token);
    from.onmouseenter = () => { if (state.token === null) draw(f); };
    from.onclick = () => { state.token = state.token === f ? null : f; choose(); };
    svg.append(from, element('text', {x: RIGHT + 6, y: y + 4}, token));
  });
}

function choose() {
  const parts = [state.layer, state.head];
  if (state.token !== null) parts.push(state.token);
  history.replaceState(null, '', '#' + parts.join('.'));
  document.querySelectorAll('#grid button').forEach(button =>
    button.setAttribute('aria-pressed', button.dataset.key === state.layer + '.' + state.head));
  document.querySelector('#head h3').textContent =
    `Layer ${state.layer}, ` + (state.head === MEAN ? 'mean of all heads' : `head ${state.head}`);
  draw(state.token);
}

function fromAddress() {
  const [layer, head, token] = location.hash.slice(1).split('.').map(Number);
  if (layer >= 0 && layer < L && head >= 0 && head <= N) {
    Object.assign(state, {layer, head, token: token >= 0 && token < S ? token : null});
  }
}

document.getElementById('head').innerHTML = `<h3></h3><svg viewBox="0 0 ${WIDTH} ${STEP * S}"
  width="${WIDTH}" height="${STEP * S}" xmlns="${SVG}"></svg>`;
document.querySelector('#head svg').onmouseleave = () => { if (state.token === null) draw(null); };
document.addEventListener('keydown', event => {
  const step = {ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  if (!step || !event.target.closest('#attention')) return;
  event.preventDefault();
  state.layer = Math.min(L - 1, Math.max(0, state.layer + step[0]));
  state.head = Math.min(N, Math.max(0, state.head + step[1]));
  choose();
  document.querySelector(`#grid [data-key="${state.layer}.${state.head}"]`).focus();
});
window.addEventListener('hashchange', () => { fromAddress(); choose(); });
fromAddress();
makeGrid();
choose();
"""
