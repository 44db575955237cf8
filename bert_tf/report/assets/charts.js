'use strict';
// Drawings by the `kind` of a part: draw[kind](part) returns an element. Texts become text nodes only.
const draw = {};
const page = document.getElementById('page');
const narrow = matchMedia('(max-width: 640px)');
const SVG = 'http://www.w3.org/2000/svg';
const COLORS = [0, 1, 2, 3, 4].map(number => `var(--color-${number})`);
const [FOR, AGAINST] = COLORS;  // blue and orange, which nearly all readers tell apart

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const drawing = (width, height, label, children) =>
  svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label},
    ...children);

// A number with four digits; whole numbers and numbers above 1000 without a fraction.
function figure(value) {
  if (typeof value !== 'number') return String(value);
  const size = Math.abs(value);
  if (size >= 1000 || Number.isInteger(value)) return value.toFixed(0);
  const short = Number(value.toPrecision(4));
  return size < 1e-4 ? short.toExponential() : String(short);
}
const signed = (value, digits) => (value < 0 ? '' : '+') + value.toFixed(digits);
const shortened = (name, length) => name.length <= length ? name : name.slice(0, length - 1) + '…';
// The isolated text does not change the direction of its neighbours.
const isolated = text => '\u2068' + text + '\u2069';
const WIDEST = 630;
const widthUpTo = most => Math.min(most, page.clientWidth);

draw.bars = ({rows, unit}) => {
  const width = widthUpTo(560), step = 22, [left, letters] = narrow.matches ? [120, 16] : [190, 26];
  const height = step * rows.length + 24;
  const parts = rows.flatMap(([name, score, count], index) => {
    const y = step * index + 4, long = Math.max(0, Math.min(1, score)) * (width - left - 110);
    return [
      svg('text', {x: left - 8, y: y + 13, 'text-anchor': 'end'}, shortened(name, letters),
        svg('title', {}, name)),
      svg('rect', {x: left, y, width: long, height: 16, fill: FOR}),
      svg('text', {x: left + long + 6, y: y + 13}, figure(score) + ' ',
        svg('tspan', {class: 'faint'}, `of ${count}`))];
  });
  parts.push(svg('text', {x: left, y: height - 6, class: 'faint'}, unit));
  return drawing(width, height, unit, parts);
};

// Bars to both sides of zero.
draw.signed_bars = ({label, rows}) => {
  const step = 22, width = widthUpTo(WIDEST);
  const [left, ends, letters] = narrow.matches ? [105, 55, 10] : [150, 70, 16];
  const half = (width - left - 2 * ends) / 2, middle = left + ends + half;
  const widest = Math.max(...rows.map(([, , value]) => Math.abs(value)));
  const parts = [svg('line', {x1: middle, x2: middle, y1: 0, y2: step * rows.length, class: 'grid'})];
  rows.forEach(([token, position, value], index) => {
    const y = step * index + 3, long = Math.abs(value) / widest * half, side = value > 0 ? 1 : -1;
    parts.push(
      svg('text', {x: left - 8, y: y + 13, 'text-anchor': 'end'},
        `${isolated(shortened(token, letters))} (${position})`, svg('title', {}, token)),
      svg('rect', {x: value > 0 ? middle : middle - long, y, width: long, height: 16,
        fill: value > 0 ? FOR : AGAINST}),
      svg('text', {x: middle + side * (long + 6), y: y + 13,
        'text-anchor': value > 0 ? 'start' : 'end'}, signed(value, 3)));
  });
  return drawing(width, step * rows.length, label, parts);
};

// Lines (or dots) on common axes.
draw.lines = ({series, x, y, x_range, y_range, dots, diagonal}) => {
  const points = series.flatMap(([, found]) => found);
  if (!points.length) return html('p', {class: 'faint'}, 'There is nothing to draw.');
  const width = widthUpTo(560), left = 78, right = 14, entry = 140;  // of the legend, above the lines
  const inRow = Math.floor((width - left) / entry) || 1;
  const legend = series.length > 1 ? 18 * Math.ceil(series.length / inRow) : 0;
  const height = 260 + legend, top = 12 + legend, bottom = height - 42;
  const xs = x_range || extent(points.map(point => point[0]));
  const ys = y_range || extent(points.map(point => point[1]));
  const across = value => left + (value - xs[0]) / (xs[1] - xs[0]) * (width - left - right);
  const up = value => bottom - (value - ys[0]) / (ys[1] - ys[0]) * (bottom - top);
  const parts = [];
  for (const value of ticks(ys, 5)) {
    const at = up(value);
    parts.push(svg('line', {x1: left, x2: width - right, y1: at, y2: at, class: 'grid'}),
      svg('text', {x: left - 6, y: at + 4, 'text-anchor': 'end'}, figure(value)));
  }
  for (const value of ticks(xs, narrow.matches ? 3 : 5)) {
    const label = figure(value), at = Math.min(across(value), width - 3.5 * label.length);
    parts.push(svg('text', {x: at, y: bottom + 16, 'text-anchor': 'middle'}, label));
  }
  parts.push(
    svg('text', {x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle', class: 'faint'}, x),
    svg('text', {transform: `translate(14 ${bottom / 2 + top}) rotate(-90)`,
      'text-anchor': 'middle', class: 'faint'}, y));
  if (diagonal) {
    const low = Math.max(xs[0], ys[0]), high = Math.min(xs[1], ys[1]);
    parts.push(svg('line', {x1: across(low), y1: up(low), x2: across(high), y2: up(high),
      class: 'diagonal'}));
  }
  series.forEach(([name, found], index) => {
    const color = COLORS[index % COLORS.length];
    if (dots || found.length === 1) {
      parts.push(...found.map(([a, b]) => svg('circle',
        {cx: across(a), cy: up(b), r: 2.5, fill: color, 'fill-opacity': 0.55})));
    } else {
      const path = found.map(([a, b]) => across(a).toFixed(1) + ',' + up(b).toFixed(1)).join(' ');
      parts.push(svg('polyline', {points: path, fill: 'none', stroke: color, 'stroke-width': 1.8}));
    }
    if (series.length > 1) {
      const x = left + entry * (index % inRow), y = 12 + 18 * Math.floor(index / inRow);
      parts.push(svg('rect', {x, y: y - 9, width: 10, height: 10, fill: color}),
        svg('text', {x: x + 15, y}, name));
    }
  });
  return drawing(width, height, `${y} by ${x}`, parts);
};

function extent(values) {
  const low = Math.min(...values), high = Math.max(...values);
  if (low < high) return [low, high];
  const margin = Math.abs(low) * 0.1 || 1;
  return [low - margin, high + margin];
}

// About `number` round values between two others.
function ticks([low, high], number) {
  const raw = (high - low) / number, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power)
    .reduce((a, b) => Math.abs(b - raw) < Math.abs(a - raw) ? b : a);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({length: last - first + 1}, (_, index) =>
    Number(((first + index) * step).toPrecision(10)));
}
