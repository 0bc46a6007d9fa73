// Charts of the live page and of the report file: lines over time or over a key, a heat map, a matrix.
//
// Every text comes in by textContent, never as markup. A chart is SVG and takes its colours from the style sheet, so that
// it follows light, dark and print. Hue, dash and width are a line's identity; the colours of states (good, warning, bad)
// are never used for lines. Charts of one group share the cursor, and the zoom too unless they have a zoom group.
'use strict';
const Charts = (() => {
  const SVG = 'http://www.w3.org/2000/svg';
  const COLOURS = 8;
  const DASHES = 4;

  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? '' : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  function s(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(name, String(value));
    }
    for (const child of children) {
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  // Three significant digits, thousands grouped: as the tables of the terminal write it.
  function figure(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return '-';
    const size = Math.abs(value);
    if (size === 0) return '0';
    if (size >= 99.95)
      return Math.round(value)
        .toString()
        .replace(/\B(?=(\d{3})+$)/g, ',');
    const decimals =
      size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : size >= 0.009995 ? 4 : size >= 0.0009995 ? 5 : 6;
    return value.toFixed(decimals);
  }

  // The name of the x axis, with the unit of its ticks where it counts from a start.
  function axisTitle(options, until) {
    const isCounted = (options.x || 'time') === 'time' && !options.clockTicks;
    if (!options.xLabel || !isCounted) return options.xLabel;
    return options.xLabel + (until >= HOUR ? ', h:min' : ', min:s');
  }

  // For axes: 12k, 3.5M.
  function brief(value) {
    const size = Math.abs(value);
    for (const [unit, letter] of [
      [1e12, 'T'],
      [1e9, 'G'],
      [1e6, 'M'],
      [1e3, 'k'],
    ]) {
      if (size >= unit) return trimmed(value / unit) + letter;
    }
    return trimmed(value);
  }

  function trimmed(value) {
    return String(Number(value.toPrecision(3)));
  }

  function bytes(value) {
    if (value === null || value === undefined) return '-';
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < 5) {
      value /= 1024;
      unit += 1;
    }
    return (unit === 0 ? String(value) : figure(value)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit];
  }

  // 340 ms, 4.2 s, 3m 07s, 2h 05m, 3d 04h.
  function span(seconds) {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '-';
    const two = (number) => String(Math.floor(number)).padStart(2, '0');
    if (seconds < 0.9995) return Math.round(seconds * 1000) + ' ms';
    if (seconds < 10) return seconds.toFixed(1) + ' s';
    if (seconds < 60) return Math.floor(seconds) + ' s';
    if (seconds < 3600) return Math.floor(seconds / 60) + 'm ' + two(seconds % 60) + 's';
    if (seconds < 86400) return Math.floor(seconds / 3600) + 'h ' + two((seconds % 3600) / 60) + 'm';
    return Math.floor(seconds / 86400) + 'd ' + two((seconds % 86400) / 3600) + 'h';
  }

  function clock(us, withDate) {
    if (us === null || us === undefined) return '-';
    const text = new Date(us / 1000).toISOString();
    return withDate ? text.slice(0, 10) + ' ' + text.slice(11, 19) : text.slice(11, 19);
  }

  function ticks(from, until, most) {
    const rough = (until - from) / Math.max(1, most);
    if (!(rough > 0)) return [from];
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
    const found = [];
    for (let at = Math.ceil(from / step - 1e-9) * step; at <= until + step * 1e-9; at += step)
      found.push(Number(at.toPrecision(12)));
    return found;
  }

  function logTicks(from, until) {
    const low = Math.floor(Math.log10(from)),
      high = Math.ceil(Math.log10(until));
    const found = [];
    const factors = high - low <= 2 ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil((high - low) / 7));
    for (let power = low; power <= high; power += stride) {
      for (const factor of factors) {
        const at = factor * Math.pow(10, power);
        if (at >= from * 0.999 && at <= until * 1.001) found.push(at);
      }
    }
    return found;
  }

  const TIME_STEPS = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  ];

  function timeTicks(from, until, most, offset) {
    const rough = (until - from) / Math.max(1, most);
    const step = TIME_STEPS.find((one) => one >= rough) || Math.ceil(rough / 604800) * 604800;
    const found = [];
    for (let at = Math.ceil((from + offset) / step) * step; at <= until + offset; at += step) found.push(at - offset);
    return { found, step };
  }

  const HOUR = 3600;

  // The seconds without a point after which a line of such points breaks.
  function gapAfter(width) {
    return Math.max(3.5, 2.5 * width);
  }

  // `1:05`: minutes and seconds; on an axis of an hour or more, hours and minutes.
  function elapsed(seconds, step, isLong) {
    const sign = seconds < 0 ? '-' : '';
    const whole = Math.round(Math.abs(seconds));
    const two = (number) => String(number).padStart(2, '0');
    const days = Math.floor(whole / 86400),
      hours = Math.floor((whole % 86400) / 3600);
    const minutes = Math.floor((whole % 3600) / 60),
      rest = whole % 60;
    if (step >= 86400) return sign + days + 'd';
    if (days > 0) return sign + days + 'd ' + two(hours) + ':' + two(minutes);
    if (hours > 0 || step >= HOUR || isLong)
      return sign + hours + ':' + two(minutes) + (step < 60 ? ':' + two(rest) : '');
    return sign + minutes + ':' + two(rest);
  }

  // Dated facts in a lane above the plot, so that they cover no data. What a person said is named where there is room;
  // the cursor tells the text of each.
  function drawMarks(svg, all, px, [from, until], edge) {
    const marks = (all || []).filter((mark) => mark.at >= from && mark.at <= until);
    let free = -Infinity;
    for (const mark of marks.slice(0, 200)) {
      const x = px(mark.at);
      const flag = s('path', { class: 'flag ' + mark.severity, d: 'M' + (x - 4) + ' ' + (edge.top - 9) + 'h8l-4 7z' });
      flag.append(s('title', {}, mark.text));
      svg.append(flag);
      if (!mark.name || x < free) continue;
      const name = mark.name.length > 28 ? mark.name.slice(0, 27) + '\u2026' : mark.name;
      const toLeft = x + 6.2 * name.length + 7 > px(until);
      if (toLeft && x - 6.2 * name.length < free) continue;
      svg.append(
        s(
          'text',
          { class: 'mark-name', x: x + (toLeft ? -7 : 7), y: edge.top - 2, 'text-anchor': toLeft ? 'end' : 'start' },
          name,
        ),
      );
      free = toLeft ? x + 7 : x + 6.2 * name.length + 10;
    }
  }

  // An axis that several charts share.
  function group() {
    return { charts: new Set(), domain: null, cursor: null };
  }

  function everyChart(group, own, act) {
    const charts = group ? [...group.charts] : [own];
    for (const chart of charts) if (chart.box.isConnected || chart === own) act(chart);
  }

  // The room around a plot: the unit above it, names of bands in a row below that, marks in a lane below those, ticks and
  // the axis' name beneath.
  function edges(options) {
    const lane = options.marks && options.marks.length ? 14 : 0;
    const names = options.bands && options.bands.length ? 13 : 0;
    return { left: 52, right: 12, top: 18 + names + lane, bottom: options.xLabel ? 38 : 22, lane };
  }

  function drawUnit(svg, unit) {
    if (unit) svg.append(s('text', { class: 'unit', x: 0, y: 10 }, unit));
  }

  // What stands above the y axis.
  function unitTitle(options) {
    const title = options.axisName || options.unit || '';
    return title && options.log ? title + ', log scale' : title;
  }

  // How a line looks, in the legend and in the tip.
  function swatch(colour, series) {
    return s(
      'svg',
      { class: 'swatch', viewBox: '0 0 22 8', width: 22, height: 8, 'aria-hidden': 'true' },
      s('path', { class: lineClass(colour, series), d: 'M0 4H22' }),
    );
  }

  function lineClass(colour, series) {
    return 'line s' + colour + (series.dash ? ' d' + (series.dash % DASHES) : '') + (series.thin ? ' thin' : '');
  }

  // A line chart. `options`: label, unit, series, x ('time', 'number', 'log', 'category'), categories, originUs,
  // xLabel, axisName (above the y axis instead of the unit), log (the y axis), group, zoomGroup, bands, breaks
  // (places that no line crosses), marks, height, clockTicks, gap (seconds after which a line breaks), bucket (the
  // seconds that a point covers from its x on). A series: name, x, y, least, most (an envelope), width (of all points
  // or of each, instead of the bucket), starts (the indices of points that are not joined to the one before), colour,
  // dash, hidden, thin, points. Series of one name are repeats of one thing: they look alike and share an entry of
  // the legend.
  class Line {
    constructor(container, options) {
      this.box = container;
      this.hidden = new Set(options.series.filter((one) => one.hidden).map((one) => one.name));
      this.ownDomain = null;
      this.plot = h('div', { class: 'plot', tabindex: '0', role: 'img' });
      this.tip = h('div', { class: 'tip', hidden: true });
      this.legend = h('div', { class: 'legend', role: 'group', 'aria-label': 'Series of: ' + options.label });
      this.reset = h(
        'button',
        { type: 'button', class: 'reset quiet', hidden: true, onclick: () => this.zoom(null) },
        'Show all',
      );
      this.box.classList.add('chart');
      this.box.append(h('div', { class: 'plot-frame' }, this.plot, this.tip, this.reset), this.legend);
      this.group = options.group || null;
      this.zoomGroup = options.zoomGroup || this.group;
      for (const group of [this.group, this.zoomGroup]) if (group) group.charts.add(this);
      this.plot.addEventListener('pointermove', (event) => this.pointed(event));
      this.plot.addEventListener('pointerleave', () => this.point(null));
      this.plot.addEventListener('pointerdown', (event) => this.pressed(event));
      this.plot.addEventListener('pointerup', (event) => this.released(event));
      this.plot.addEventListener('pointercancel', () => {
        this.drag = null;
        this.draw();
      });
      this.plot.addEventListener('dblclick', () => this.zoom(null));
      this.plot.addEventListener('keydown', (event) => this.key(event));
      this.plot.addEventListener('blur', () => this.point(null));
      this.width = 0;
      new ResizeObserver(() => {
        const width = Math.floor(this.plot.clientWidth);
        if (width !== this.width) this.draw();
      }).observe(this.plot);
      this.update(options);
    }

    update(options) {
      this.options = options;
      this.x = options.x || 'time';
      this.listLegend();
      this.draw();
    }

    get domain() {
      return this.zoomGroup ? this.zoomGroup.domain : this.ownDomain;
    }

    get shown() {
      return this.options.series.filter((one) => !this.hidden.has(one.name));
    }

    colour(series) {
      return series.colour !== undefined ? series.colour : this.options.series.indexOf(series) % COLOURS;
    }

    listLegend() {
      const byName = new Map();
      for (const series of this.options.series)
        if (!byName.has(series.name) || byName.get(series.name).thin) byName.set(series.name, series);
      const key = [...byName.values()].map((one) => one.name + '/' + lineClass(this.colour(one), one)).join('|');
      if (key === this.legendKey) return;
      this.legendKey = key;
      // One line that is called like its unit needs no name.
      this.legend.hidden = byName.size === 1 && byName.has(this.options.unit);
      this.entries = new Map();
      this.legend.replaceChildren(
        ...[...byName.values()].map((series) => {
          const value = h('span', { class: 'value' });
          const button = h(
            'button',
            {
              type: 'button',
              class: 'series',
              'aria-pressed': String(!this.hidden.has(series.name)),
              title: 'Click: show or hide. Shift and click: only this one.',
              onclick: (event) => this.toggle(series.name, event.shiftKey),
            },
            swatch(this.colour(series), series),
            h('span', {}, series.name),
            value,
          );
          this.entries.set(series.name, { button, value });
          return button;
        }),
      );
    }

    toggle(name, alone) {
      const names = [...this.entries.keys()];
      if (alone) this.hidden = new Set(names.filter((one) => one !== name));
      else if (this.hidden.has(name)) this.hidden.delete(name);
      else this.hidden.add(name);
      for (const [one, { button }] of this.entries) button.setAttribute('aria-pressed', String(!this.hidden.has(one)));
      this.draw();
    }

    zoom(domain) {
      if (this.zoomGroup) this.zoomGroup.domain = domain;
      else this.ownDomain = domain;
      everyChart(this.zoomGroup, this, (chart) => chart.draw());
    }

    extent() {
      if (this.options.extent) return this.options.extent;
      let from = Infinity,
        until = -Infinity;
      for (const series of this.options.series) {
        for (const at of series.x) {
          if (at < from) from = at;
          if (at > until) until = at;
        }
      }
      if (this.x === 'category') return [-0.5, this.options.categories.length - 0.5];
      if (from === Infinity) return this.x === 'log' ? [1, 10] : [0, 1];
      until += this.options.bucket || 0;
      if (this.x === 'log') return [from / 1.15, until * 1.15];
      if (from === until) return [from - 0.5, until + 0.5];
      // Room for the dots at both ends.
      const room = this.options.series.some((one) => one.points) ? (until - from) * 0.02 : 0;
      return [from - room, until + room];
    }

    draw() {
      const width = Math.floor(this.plot.clientWidth);
      if (width < 120) return;
      this.width = width;
      const height = this.options.height || 200;
      const edge = edges(this.options);
      const inner = { width: width - edge.left - edge.right, height: height - edge.top - edge.bottom };
      const [from, until] = this.domain || this.extent();
      const toLog = this.x === 'log';
      const place = (value) => (toLog ? Math.log(value) : value);
      const px = (value) =>
        edge.left + ((place(value) - place(from)) / (place(until) - place(from) || 1)) * inner.width;
      this.unpx = (at) => {
        const share = Math.min(1, Math.max(0, (at - edge.left) / inner.width));
        const value = place(from) + share * (place(until) - place(from));
        return toLog ? Math.exp(value) : value;
      };
      this.edge = edge;
      this.inner = inner;
      const bucket = this.options.bucket || 0;
      let low = Infinity,
        high = -Infinity;
      for (const series of this.shown) {
        for (let at = 0; at < series.x.length; at += 1) {
          if (series.x[at] < from - bucket || series.x[at] > until) continue;
          for (const value of [series.y[at], series.least && series.least[at], series.most && series.most[at]]) {
            if (value === null || value === undefined || !Number.isFinite(value)) continue;
            if (this.options.log && value <= 0) continue;
            if (value < low) low = value;
            if (value > high) high = value;
          }
        }
      }
      if (low === Infinity) [low, high] = this.options.log ? [0.1, 1] : [0, 1];
      let py, yTicks;
      if (this.options.log) {
        low /= 1.15;
        high *= 1.15;
        if (high / low < 4) [low, high] = [low / 2, high * 2];
        py = (value) => edge.top + inner.height * (1 - Math.log(Math.max(value, low) / low) / Math.log(high / low));
        yTicks = logTicks(low, high);
      } else {
        low = 0;
        high = high > 0 ? high * 1.06 : 1;
        if (this.options.top) high = Math.max(high, this.options.top);
        py = (value) => edge.top + inner.height * (1 - value / high);
        yTicks = ticks(low, high, Math.max(2, Math.floor(inner.height / 40)));
      }
      const svg = s('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, 'aria-hidden': 'true' });
      const bottom = edge.top + inner.height;
      for (const tick of yTicks) {
        const y = Math.round(py(tick)) + 0.5;
        svg.append(s('line', { class: 'grid', x1: edge.left, x2: edge.left + inner.width, y1: y, y2: y }));
        svg.append(s('text', { class: 'tick', x: edge.left - 6, y: y + 3.5, 'text-anchor': 'end' }, brief(tick)));
      }
      drawUnit(svg, unitTitle(this.options));
      this.drawBands(svg, px, from, until);
      this.drawX(svg, px, from, until, bottom);
      svg.append(
        s('line', { class: 'axis', x1: edge.left, x2: edge.left + inner.width, y1: bottom + 0.5, y2: bottom + 0.5 }),
      );
      const clipId = 'clip-' + (Line.count = (Line.count || 0) + 1);
      svg.append(
        s(
          'clipPath',
          { id: clipId },
          s('rect', { x: edge.left, y: edge.top - 2, width: inner.width, height: inner.height + 4 }),
        ),
      );
      const lines = s('g', { 'clip-path': 'url(#' + clipId + ')' });
      for (const series of this.shown) this.drawSeries(lines, series, px, py, from, until);
      svg.append(lines);
      drawMarks(svg, this.options.marks, px, [from, until], edge);
      this.cursor = s('g', { class: 'cursor' });
      this.selection = s('rect', { class: 'selection', y: edge.top, height: inner.height, width: 0, x: 0 });
      svg.append(this.selection, this.cursor);
      this.px = px;
      this.py = py;
      this.plot.replaceChildren(svg);
      this.plot.setAttribute('aria-label', this.describe());
      this.reset.hidden = !this.domain;
      if (this.group && this.group.cursor !== null) this.showCursor(this.group.cursor);
    }

    drawX(svg, px, from, until, bottom) {
      const { edge, inner } = this;
      const label = (at, text) => {
        const x = px(at);
        if (x < edge.left - 1 || x > edge.left + inner.width + 1) return;
        svg.append(s('line', { class: 'axis', x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
        const anchor = x > edge.left + inner.width - 20 ? 'end' : x < edge.left + 14 ? 'start' : 'middle';
        svg.append(s('text', { class: 'tick', x, y: bottom + 16, 'text-anchor': anchor }, text));
      };
      const most = Math.max(2, Math.floor(inner.width / 90));
      if (this.x === 'category') {
        const stride = Math.ceil(this.options.categories.length / Math.max(2, Math.floor(inner.width / 60)));
        this.options.categories.forEach((text, at) => {
          if (at % stride === 0) label(at, text);
        });
      } else if (this.x === 'time') {
        const offset = this.options.clockTicks && this.options.originUs ? (this.options.originUs / 1e6) % 86400 : 0;
        const { found, step } = timeTicks(from, until, most, offset);
        for (const at of found) {
          const text = offset
            ? clock(this.options.originUs + at * 1e6).slice(0, step >= 60 ? 5 : 8)
            : elapsed(at, step, until >= HOUR);
          label(at, text);
        }
      } else if (this.x === 'log') {
        const given = this.options.xTicks;
        if (given) given.forEach(([at, text]) => label(at, text));
        else for (const at of logTicks(from, until)) label(at, brief(at));
      } else {
        if (this.options.xTicks) this.options.xTicks.forEach(([at, text]) => label(at, text));
        else for (const at of ticks(from, until, most)) label(at, brief(at));
      }
      if (this.options.xLabel)
        svg.append(
          s(
            'text',
            { class: 'tick', x: edge.left + inner.width / 2, y: bottom + 32, 'text-anchor': 'middle' },
            axisTitle(this.options, until),
          ),
        );
    }

    drawBands(svg, px, from, until) {
      const { edge, inner } = this;
      const bands = this.options.bands || [];
      const visible = bands.filter((band) => band.until >= from && band.from <= until);
      if (visible.length > inner.width / 6) return;
      visible.forEach((band) => {
        const left = Math.max(edge.left, px(band.from)),
          right = Math.min(edge.left + inner.width, px(band.until));
        const at = bands.indexOf(band);
        svg.append(
          s('rect', {
            class: at % 2 ? 'band odd' : 'band',
            x: left,
            y: edge.top,
            width: Math.max(0.5, right - left),
            height: inner.height,
          }),
        );
        const room = Math.floor((right - left) / 6.2);
        const text = [band.title, String(band.name)].find((one) => one && one.length <= room);
        if (text) svg.append(s('text', { class: 'band-name', x: left + 2, y: edge.top - edge.lane - 6 }, text));
      });
    }

    // The seconds that a point covers from its x on.
    covered(series, at) {
      if (this.x !== 'time') return 0;
      return (Array.isArray(series.width) ? series.width[at] : series.width) ?? this.options.bucket ?? 0;
    }

    middle(series, at) {
      return series.x[at] + this.covered(series, at) / 2;
    }

    // The time without a point after which the line breaks before this point. The last point of a step may cover less.
    gapBefore(series, at) {
      if (this.x !== 'time') return Infinity;
      return this.options.gap || gapAfter(Math.max(this.covered(series, at), at ? this.covered(series, at - 1) : 0));
    }

    // The index of the point whose middle is nearest; -1 if there is none.
    nearestPoint(series, x) {
      const found = nearest(series.x, x);
      const away = (at) => Math.abs(this.middle(series, at) - x);
      return [found - 1, found + 1].reduce(
        (best, at) => (at >= 0 && at < series.x.length && away(at) < away(best) ? at : best),
        found,
      );
    }

    drawSeries(lines, series, px, py, from, until) {
      const colour = 's' + this.colour(series);
      const parts = [];
      const breaks = this.options.breaks || [];
      let open = null,
        last = -Infinity,
        next = 0;
      for (let at = 0; at < series.x.length; at += 1) {
        const x = series.x[at],
          y = series.y[at];
        const gap = this.gapBefore(series, at);
        if (x < from - gap && series.x[at + 1] < from) continue;
        if (x > until + gap) break;
        const isGap = y === null || y === undefined || (this.options.log && y <= 0);
        if (isGap || x - last > gap || (series.starts && series.starts.has(at))) open = null;
        for (; next < breaks.length && breaks[next] <= this.middle(series, at); next += 1) open = null;
        if (isGap) continue;
        if (!open) parts.push((open = []));
        open.push(at);
        last = x;
      }
      const point = (at, value) => px(this.middle(series, at)).toFixed(1) + ' ' + py(value).toFixed(1);
      if (series.least && series.most) {
        const areas = parts
          .filter((part) => part.length > 1)
          .map(
            (part) =>
              'M' +
              part.map((at) => point(at, series.most[at] === null ? series.y[at] : series.most[at])).join('L') +
              'L' +
              [...part]
                .reverse()
                .map((at) => point(at, series.least[at] === null ? series.y[at] : series.least[at]))
                .join('L') +
              'Z',
          )
          .join('');
        if (areas) lines.append(s('path', { class: 'envelope ' + colour, d: areas }));
      }
      const path = parts
        .filter((part) => part.length > 1)
        .map((part) => 'M' + part.map((at) => point(at, series.y[at])).join('L'))
        .join('');
      if (path)
        lines.append(
          s('path', {
            class: lineClass(this.colour(series), series),
            d: path,
          }),
        );
      // A point alone, as of a load of less than a second, is a bar as long as the point.
      const alone = parts.filter((part) => part.length === 1 && !series.points && this.x === 'time');
      for (const [at] of alone) {
        const left = px(series.x[at]),
          right = Math.max(left + 3, px(series.x[at] + this.covered(series, at)));
        const d = 'M' + left.toFixed(1) + ' ' + py(series.y[at]).toFixed(1) + 'H' + right.toFixed(1);
        lines.append(s('path', { class: 'line bar ' + colour, d }));
      }
      for (const at of series.points ? parts.flat() : [])
        lines.append(
          s('circle', {
            class: 'dot ' + colour,
            cx: px(this.middle(series, at)).toFixed(1),
            cy: py(series.y[at]).toFixed(1),
            r: 3,
          }),
        );
    }

    describe() {
      const parts = this.shown.slice(0, 6).map((series) => {
        const known = series.y.filter((value) => value !== null && value !== undefined);
        if (!known.length) return series.name + ': no values';
        return (
          series.name +
          ': ' +
          figure(Math.min(...known)) +
          ' to ' +
          figure(Math.max(...known)) +
          ' ' +
          (this.options.unit || '')
        );
      });
      return (
        this.options.label + '. ' + parts.join('; ') + '. Arrow keys read values, plus and minus zoom, 0 shows all.'
      );
    }

    offset(event) {
      return event.clientX - this.plot.getBoundingClientRect().left;
    }

    pressed(event) {
      if (event.button !== 0 || event.pointerType === 'touch' || this.x === 'category') return;
      this.drag = this.offset(event);
      this.plot.setPointerCapture(event.pointerId);
    }

    pointed(event) {
      const at = this.offset(event);
      if (this.drag !== null && this.drag !== undefined) {
        this.selection.setAttribute('x', String(Math.min(at, this.drag)));
        this.selection.setAttribute('width', String(Math.abs(at - this.drag)));
      }
      if (this.unpx) this.point(this.unpx(at));
    }

    released(event) {
      if (this.drag === null || this.drag === undefined) return;
      const from = Math.min(this.drag, this.offset(event)),
        until = Math.max(this.drag, this.offset(event));
      this.drag = null;
      this.selection.setAttribute('width', '0');
      if (until - from > 6) this.zoom([this.unpx(from), this.unpx(until)]);
    }

    key(event) {
      const [from, until] = this.domain || this.extent();
      const middle = this.at === null || this.at === undefined ? (from + until) / 2 : this.at;
      const step = (until - from) / 60;
      if (event.key === 'ArrowLeft') this.point(Math.max(from, this.stepped(middle, -1, step)));
      else if (event.key === 'ArrowRight') this.point(Math.min(until, this.stepped(middle, 1, step)));
      else if (event.key === '+' || event.key === '=')
        this.zoom([middle - (middle - from) / 2, middle + (until - middle) / 2]);
      else if (event.key === '-') this.domain && this.zoom([from - (until - from) / 2, until + (until - from) / 2]);
      else if (event.key === '0' || event.key === 'Escape') this.zoom(null);
      else return;
      event.preventDefault();
    }

    stepped(at, direction, step) {
      return this.x === 'category' ? Math.round(at) + direction : at + direction * step;
    }

    point(at) {
      if (this.group) this.group.cursor = at;
      everyChart(this.group, this, (chart) => chart.showCursor(at, chart === this));
    }

    showCursor(at, isOwn) {
      this.at = at;
      if (!this.cursor) return;
      for (const { value } of this.entries.values()) value.textContent = '';
      if (at === null) {
        this.cursor.replaceChildren();
        this.tip.hidden = true;
        return;
      }
      const rows = [];
      let shownAt = at;
      for (const series of this.shown) {
        const index = this.nearestPoint(series, at);
        if (index < 0) continue;
        const value = series.y[index];
        const far = Math.abs(this.middle(series, index) - at) > this.gapBefore(series, index);
        if (value === null || value === undefined || far) continue;
        rows.push({ series, value, index });
        if (this.x !== 'time') shownAt = series.x[index];
      }
      const x = this.px(shownAt);
      if (x < this.edge.left - 1 || x > this.edge.left + this.inner.width + 1) {
        this.cursor.replaceChildren();
        this.tip.hidden = true;
        return;
      }
      this.cursor.replaceChildren(
        s('line', { x1: x, x2: x, y1: this.edge.top - this.edge.lane, y2: this.edge.top + this.inner.height }),
        ...rows.map((row) =>
          s('circle', {
            class: 's' + this.colour(row.series),
            cx: this.px(this.middle(row.series, row.index)),
            cy: this.py(row.value),
            r: 3,
          }),
        ),
      );
      if (!isOwn) {
        // The values of the other charts stand in their legends.
        for (const { series, value } of [...rows].reverse())
          this.entries.get(series.name).value.textContent = figure(value);
        this.tip.hidden = true;
        return;
      }
      const band = (this.options.bands || []).find((one) => at >= one.from && at <= one.until);
      const close = (this.options.marks || []).filter((mark) => Math.abs(this.px(mark.at) - x) < 5).slice(0, 3);
      rows.sort((a, b) => b.value - a.value);
      this.tip.replaceChildren(
        h('div', { class: 'tip-head' }, this.head(shownAt)),
        band ? h('div', { class: 'tip-band' }, band.name + ' ' + (band.title || '')) : '',
        h(
          'table',
          {},
          h(
            'tbody',
            {},
            rows
              .slice(0, 14)
              .map((row) =>
                h(
                  'tr',
                  {},
                  h('td', {}, swatch(this.colour(row.series), row.series), row.series.name),
                  h('td', { class: 'number' }, figure(row.value) + ' ' + (this.options.unit || '')),
                  h(
                    'td',
                    { class: 'number faint' },
                    row.series.most && row.series.most[row.index] !== null && row.series.most[row.index] !== row.value
                      ? figure(row.series.least[row.index]) + ' to ' + figure(row.series.most[row.index])
                      : '',
                  ),
                ),
              ),
          ),
        ),
        ...(rows.length > 14 ? [h('div', { class: 'faint' }, rows.length - 14 + ' more')] : []),
        ...close.map((mark) => h('div', { class: 'tip-mark ' + mark.severity }, mark.text)),
      );
      this.tip.hidden = false;
      const room = this.plot.clientWidth - this.tip.offsetWidth;
      this.tip.style.left =
        Math.max(0, Math.min(room, x + (x > this.plot.clientWidth / 2 ? -this.tip.offsetWidth - 12 : 12))) + 'px';
    }

    head(at) {
      if (this.x === 'time') {
        const since = this.options.originUs ? clock(this.options.originUs + at * 1e6, true) + ' UTC' : '';
        return this.options.clockTicks ? since : elapsed(at, 1) + (since ? '  ' + since : '');
      }
      if (this.x === 'category')
        return (
          (this.options.xLabel ? this.options.xLabel + ' ' : '') +
          this.options.categories[Math.max(0, Math.min(this.options.categories.length - 1, Math.round(at)))]
        );
      return (this.options.xLabel ? this.options.xLabel + ' ' : '') + figure(at);
    }
  }

  function nearest(sorted, value) {
    let low = 0,
      high = sorted.length - 1;
    if (high < 0) return -1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low > 0 && Math.abs(sorted[low - 1] - value) <= Math.abs(sorted[low] - value) ? low - 1 : low;
  }

  // What stands beneath a chart: each series in figures, and all points on request.
  function numbers(options) {
    const unit = options.unit || '';
    const rows = options.series.map((series) => {
      const known = series.y.filter((value) => value !== null && value !== undefined);
      const sum = known.reduce((total, value) => total + value, 0);
      const least = series.least ? Math.min(...series.least.filter((value) => value !== null)) : Math.min(...known);
      const most = series.most ? Math.max(...series.most.filter((value) => value !== null)) : Math.max(...known);
      return known.length
        ? [series.name, least, sum / known.length, most, known[known.length - 1], known.length]
        : [series.name, null, null, null, null, 0];
    });
    const all = h('div', {});
    const details = h(
      'details',
      { class: 'numbers' },
      h('summary', {}, 'Numbers'),
      table(
        [
          { title: 'series' },
          ...['least', 'mean', 'most', 'last'].map((title) => ({
            title: title + (unit ? ', ' + unit : ''),
            right: true,
          })),
          { title: 'points', right: true },
        ],
        rows.map((row) => [row[0], ...row.slice(1, 5).map(figure), String(row[5])]),
      ),
      all,
    );
    const button = h(
      'button',
      {
        type: 'button',
        class: 'quiet',
        onclick: () => {
          button.remove();
          const text = options.series.flatMap((series) =>
            series.x.map((x, at) =>
              [series.name, x, series.y[at]]
                .map((cell) =>
                  cell === null || cell === undefined
                    ? ''
                    : /[",\n]/.test(String(cell))
                      ? '"' + String(cell).replaceAll('"', '""') + '"'
                      : String(cell),
                )
                .join(','),
            ),
          );
          all.append(
            h(
              'textarea',
              { readonly: true, rows: '12', 'aria-label': 'All points as CSV' },
              ['series,x,y', ...text].join('\n'),
            ),
          );
        },
      },
      'All points as CSV',
    );
    all.append(button);
    return details;
  }

  function table(columns, rows, attributes) {
    const head = h(
      'tr',
      {},
      columns.map((column) => h('th', { scope: 'col', class: column.right ? 'number' : null }, column.title)),
    );
    const bands = bandsOf(columns);
    // Sentences are wrapped; figures and names are not.
    const isLong = columns.map(
      (column, at) => !column.right && rows.some((row) => typeof row[at] === 'string' && row[at].length > 40),
    );
    const body = rows.map((row) =>
      h(
        'tr',
        {},
        row.map((cell, at) =>
          h(
            'td',
            {
              class: columns[at].right ? 'number' : isLong[at] ? 'wrap' : null,
              'data-label': [columns[at].band, columns[at].title].filter(Boolean).join(' '),
            },
            cell,
          ),
        ),
      ),
    );
    return h(
      'div',
      {
        class: rows.length > 60 ? 'scroll tall' : 'scroll',
        tabindex: '0',
        role: 'group',
        'aria-label': (attributes && attributes.label) || 'Table',
      },
      h(
        'table',
        { class: 'data' },
        h(
          'thead',
          {},
          bands.length > 1
            ? h(
                'tr',
                { class: 'bands' },
                bands.map((band) =>
                  band.name === null
                    ? h('td', { colspan: band.columns })
                    : h('th', { scope: 'colgroup', colspan: band.columns }, band.name),
                ),
              )
            : null,
          head,
        ),
        h('tbody', {}, body),
      ),
    );
  }

  // Neighbouring columns that have a band in common stand under one head; columns without any under an empty cell.
  function bandsOf(columns) {
    const bands = [];
    for (const column of columns) {
      const name = column.band || null;
      const last = bands[bands.length - 1];
      if (last && last.name === name) last.columns += 1;
      else bands.push({ name, columns: 1 });
    }
    return bands;
  }

  // Operations by latency over time. Darker: a larger share of the column's operations.
  class Heat {
    constructor(container, options) {
      this.box = container;
      this.options = options;
      this.group = options.group || null;
      this.plot = h('div', { class: 'plot', role: 'img', tabindex: '0', 'aria-label': options.label });
      this.tip = h('div', { class: 'tip', hidden: true });
      this.box.classList.add('chart');
      this.box.append(h('div', { class: 'plot-frame' }, this.plot, this.tip));
      if (this.group) this.group.charts.add(this);
      this.columns = new Map();
      for (const [column, level, count] of options.cells) {
        if (!this.columns.has(column)) this.columns.set(column, { sum: 0, cells: [] });
        const own = this.columns.get(column);
        own.sum += count;
        own.cells.push([level, count]);
      }
      this.plot.addEventListener('pointermove', (event) => {
        if (this.unpx) this.point(this.unpx(event.clientX - this.plot.getBoundingClientRect().left));
      });
      this.plot.addEventListener('pointerleave', () => this.point(null));
      new ResizeObserver(() => {
        if (Math.floor(this.plot.clientWidth) !== this.width) this.draw();
      }).observe(this.plot);
      this.draw();
    }

    point(at) {
      if (this.group) this.group.cursor = at;
      everyChart(this.group, this, (chart) => chart.showCursor(at, chart === this));
    }

    draw() {
      const width = Math.floor(this.plot.clientWidth);
      if (width < 120) return;
      this.width = width;
      const { levels, bucket } = this.options;
      const height = this.options.height || 220;
      const edge = edges(this.options);
      const inner = { width: width - edge.left - edge.right, height: height - edge.top - edge.bottom };
      const extent = this.options.extent;
      const [from, until] = (this.group && this.group.domain) || extent;
      const px = (value) => edge.left + ((value - from) / (until - from || 1)) * inner.width;
      const row = inner.height / levels.length;
      this.px = px;
      this.unpx = (at) => from + ((at - edge.left) / inner.width) * (until - from);
      this.edge = edge;
      this.inner = inner;
      const shades = Array.from({ length: 10 }, () => []);
      for (const [column, own] of this.columns) {
        const left = Math.max(edge.left, px(column * bucket)),
          right = Math.min(edge.left + inner.width, px((column + 1) * bucket));
        if (right <= left) continue;
        for (const [level, count] of own.cells) {
          const share = Math.log10(1 + (999 * count) / own.sum) / 3;
          const top = edge.top + inner.height - (level + 1) * row;
          shades[Math.min(9, Math.floor(share * 10))].push(
            'M' +
              left.toFixed(1) +
              ' ' +
              top.toFixed(1) +
              'H' +
              right.toFixed(1) +
              'V' +
              (top + row + 0.3).toFixed(1) +
              'H' +
              left.toFixed(1) +
              'Z',
          );
        }
      }
      const svg = s('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, 'aria-hidden': 'true' });
      shades.forEach((paths, at) => {
        if (paths.length) svg.append(s('path', { class: 'heat h' + at, d: paths.join('') }));
      });
      drawUnit(svg, 'ms');
      // The levels are logarithmic within a level, too.
      for (const tick of logTicks(levels[0], levels[levels.length - 1])) {
        const above = levels.findIndex((level) => level >= tick * 0.9999);
        if (above < 0) continue;
        const below = above > 0 ? levels[above - 1] : levels[0];
        const part = above > 0 ? Math.log(tick / below) / Math.log(levels[above] / below) : 1;
        const y = edge.top + inner.height - (above + part) * row;
        svg.append(s('line', { class: 'grid', x1: edge.left, x2: edge.left + inner.width, y1: y, y2: y }));
        svg.append(s('text', { class: 'tick', x: edge.left - 6, y: y + 3.5, 'text-anchor': 'end' }, brief(tick)));
      }
      const bottom = edge.top + inner.height;
      svg.append(
        s('line', { class: 'axis', x1: edge.left, x2: edge.left + inner.width, y1: bottom + 0.5, y2: bottom + 0.5 }),
      );
      const { found, step } = timeTicks(from, until, Math.max(2, Math.floor(inner.width / 90)), 0);
      for (const at of found)
        svg.append(
          s(
            'text',
            {
              class: 'tick',
              x: px(at),
              y: bottom + 16,
              'text-anchor': px(at) > edge.left + inner.width - 20 ? 'end' : 'middle',
            },
            elapsed(at, step, until >= HOUR),
          ),
        );
      if (this.options.xLabel)
        svg.append(
          s(
            'text',
            { class: 'tick', x: edge.left + inner.width / 2, y: bottom + 32, 'text-anchor': 'middle' },
            axisTitle(this.options, until),
          ),
        );
      drawMarks(svg, this.options.marks, px, [from, until], edge);
      this.cursor = s('g', { class: 'cursor' });
      svg.append(this.cursor);
      this.plot.replaceChildren(svg);
    }

    showCursor(at, isOwn) {
      if (!this.cursor) return;
      const x = at === null ? -1 : this.px(at);
      if (at === null || x < this.edge.left || x > this.edge.left + this.inner.width) {
        this.cursor.replaceChildren();
        this.tip.hidden = true;
        return;
      }
      this.cursor.replaceChildren(
        s('line', { x1: x, x2: x, y1: this.edge.top, y2: this.edge.top + this.inner.height }),
      );
      const own = this.columns.get(Math.floor(at / this.options.bucket));
      this.tip.hidden = !isOwn || !own;
      if (this.tip.hidden) return;
      const rows = [...own.cells].sort((a, b) => b[0] - a[0]);
      this.tip.replaceChildren(
        h('div', { class: 'tip-head' }, elapsed(at, 1)),
        h(
          'table',
          {},
          h(
            'tbody',
            {},
            rows
              .slice(0, 16)
              .map(([level, count]) =>
                h(
                  'tr',
                  {},
                  h('td', {}, 'to ' + figure(this.options.levels[level]) + ' ms'),
                  h('td', { class: 'number' }, figure((100 * count) / own.sum) + ' %'),
                ),
              ),
          ),
        ),
      );
      this.tip.style.left =
        Math.max(
          0,
          Math.min(
            this.plot.clientWidth - this.tip.offsetWidth,
            x + (x > this.plot.clientWidth / 2 ? -this.tip.offsetWidth - 12 : 12),
          ),
        ) + 'px';
    }
  }

  // Numbers in a table whose cells are shaded by them.
  function matrix(options) {
    const known = options.values.flat().filter((value) => value !== null && value > 0);
    const low = Math.min(...known),
      high = Math.max(...known);
    const wide = high / low > 20;
    // Cells that hardly differ look alike.
    const contrast = Math.min(1, (5 * (high - low)) / high);
    const share = (value) => {
      if (value === null || value <= 0 || !known.length) return null;
      if (high === low) return 5;
      const at = wide ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      return Math.max(0, Math.min(9, Math.floor(at * contrast * 10)));
    };
    const corner = [options.rowKey, options.columnKey].filter(Boolean).join(' \\ ');
    return h(
      'div',
      { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': options.label },
      h(
        'table',
        { class: 'data matrix' },
        h('caption', { class: 'hidden' }, options.label),
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', { scope: 'col' }, corner),
            options.columns.map((column) => h('th', { scope: 'col', class: 'number' }, column)),
          ),
        ),
        h(
          'tbody',
          {},
          options.rows.map((row, at) =>
            h(
              'tr',
              {},
              h('th', { scope: 'row' }, row),
              options.values[at].map((value) => {
                const shade = share(value);
                return h('td', { class: 'number' + (shade === null ? '' : ' m' + shade) }, figure(value));
              }),
            ),
          ),
        ),
      ),
    );
  }

  return { h, s, figure, brief, bytes, span, clock, elapsed, group, Line, Heat, matrix, numbers, table };
})();
