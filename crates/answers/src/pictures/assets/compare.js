// A comparison: its card, the ratios with their intervals, both sides' curves laid over each other, and the tables.
// The same in the live page and in the file.
'use strict';
const BenchmeshCompare = (() => {
  const { h, s, figure } = Charts;
  const { card, choice, picture, section, textTable, rateLine, latencyLine } = BenchmeshReport;
  const JUDGED = 'what is judged';
  const MAX_RATIOS = 60;

  // `-9.3 %`, `2.1 x`: as the tables write it. The ends of an interval are written like the ratio between them.
  function change(ratio, like = ratio) {
    if (like < 0.5 || like >= 2) return (ratio > 0 && ratio < 0.5 ? '1/' + figure(1 / ratio) : figure(ratio)) + ' x';
    const percent = (ratio - 1) * 100;
    return (
      (percent > 0 ? '+' : '') +
      percent.toFixed(Math.abs(percent) >= 9.95 ? 0 : Math.abs(percent) >= 0.995 ? 1 : 2) +
      ' %'
    );
  }

  function edge(ratio) {
    return ratio < 10 ? (ratio > 1 ? '+' : '') + Math.round((ratio - 1) * 100) + ' %' : Math.round(ratio) + ' x';
  }

  function verdictClass(verdict) {
    if (verdict === 'faster' || verdict === 'cheaper' || verdict === 'better') return 'better';
    if (verdict === 'slower' || verdict === 'costlier' || verdict === 'worse') return 'worse';
    return 'none';
  }

  function subject(row) {
    const words = [row.phase, row.group, row.mode, row.op === row.mode ? '' : row.op].filter(Boolean);
    return [
      ...words.filter((word, at) => word !== words[at - 1]),
      ...Object.entries(row.cell).map(
        ([key, value]) => key + '=' + (typeof value === 'object' ? JSON.stringify(value) : value),
      ),
    ].join(' ');
  }

  // One ratio and its interval on an axis that all rows share, from `low` to `high`, logarithmic.
  function strip(row, low, high) {
    const place = (ratio) => 2 + 196 * Math.min(1, Math.max(0, Math.log(ratio / low) / Math.log(high / low)));
    const kind = verdictClass(row.verdict.replaceAll('-', ' '));
    return s(
      'svg',
      { class: 'ratio ' + kind, viewBox: '0 0 200 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      s('line', { class: 'unity', x1: place(1), x2: place(1), y1: 0, y2: 16 }),
      ...(row.low ? [s('line', { class: 'interval', x1: place(row.low), x2: place(row.high), y1: 8, y2: 8 })] : []),
      s('rect', { class: 'estimate', x: place(row.ratio) - 1.5, y: 4, width: 3, height: 8 }),
    );
  }

  // `titles`: the name and the title of each figure.
  function ratios(one, at, titles) {
    const known = titles.filter(([name]) => one.rows.some((row) => row.figure === name));
    if (!known.length) return null;
    const box = h('div', {});
    const show = (title) => {
      const titleOf = (row) => known.find(([name]) => name === row.figure)[1];
      const all = one.rows.filter((row) => (title === JUDGED ? row.judged : titleOf(row) === title));
      const rows = all.slice(0, MAX_RATIOS);
      const ends = rows.flatMap((row) =>
        [row.ratio, row.low, row.high].filter((value) => value > 0 && Number.isFinite(value)),
      );
      const low = Math.max(0.02, Math.min(0.95, ...ends) / 1.02),
        high = Math.min(50, Math.max(1.05, ...ends) * 1.02);
      box.replaceChildren(
        h(
          'div',
          { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Ratios of ' + title },
          h(
            'table',
            { class: 'data ratios' },
            h(
              'thead',
              {},
              h(
                'tr',
                {},
                [
                  ['load'],
                  ['B to A', 'number'],
                  ['95 % CI', 'number'],
                  ['from ' + edge(low) + ' to ' + edge(high) + '; the line: no change', 'strip'],
                  ['verdict'],
                ].map(([head, kind]) => h('th', { scope: 'col', class: kind || null }, head)),
              ),
            ),
            h(
              'tbody',
              {},
              rows.map((row) =>
                h(
                  'tr',
                  {},
                  h(
                    'td',
                    { class: 'wrap', 'data-label': 'load' },
                    subject(row) + (title === JUDGED ? ', ' + titleOf(row) : ''),
                  ),
                  h('td', { class: 'number', 'data-label': 'B to A' }, change(row.ratio)),
                  h(
                    'td',
                    { class: 'number', 'data-label': '95 % CI' },
                    row.low ? change(row.low, row.ratio) + ' to ' + change(row.high, row.ratio) : '-',
                  ),
                  h('td', { class: 'strip' }, strip(row, low, high)),
                  h(
                    'td',
                    { class: verdictClass(row.verdict.replaceAll('-', ' ')), 'data-label': 'verdict' },
                    row.judged ? row.verdict.replaceAll('-', ' ') : '',
                  ),
                ),
              ),
            ),
          ),
        ),
        ...(all.length > rows.length
          ? [h('p', { class: 'note' }, all.length - rows.length + ' more are in the table.')]
          : []),
      );
    };
    // Opened with the figure of each load that is judged, because the verdicts are about it.
    const choices = [...(one.rows.some((row) => row.judged) ? [JUDGED] : []), ...known.map(([, title]) => title)];
    const first = choices[0];
    const id = 'ratios-' + at;
    const panel = h(
      'section',
      { class: 'panel', id, 'aria-labelledby': id + '-title' },
      h(
        'header',
        {},
        h('h2', { id: id + '-title' }, one.b.label + ' (B) against ' + one.a.label + ' (A)'),
        h('span', { class: 'right no-print' }, choices.length > 1 ? choice('Figure', choices, first, show) : []),
      ),
      box,
    );
    show(first);
    return panel;
  }

  // Both sides of one load, or of whole runs: A in the first colour, B in the second, further repeats thinner and under
  // the same name.
  function curves(overlay, comparison, group, [rateId, latencyId], titles, isLoad) {
    const axis = {
      x: 'time',
      xLabel: 'from the start',
      group,
      bucket: overlay.bucket_s,
      extent: [0, Math.max(1, overlay.until_s)],
      height: 200,
    };
    const look = (one) => ({
      name: one.is_b ? 'B ' + comparison.b.label : 'A ' + comparison.a.label,
      thin: !one.is_first,
      colour: one.is_b ? 1 : 0,
      starts: new Set(one.starts),
    });
    const isBytes = overlay.lines.some((one) => one.series.mib_per_s.some((value) => value > 0));
    const units = isBytes ? ['MiB/s', 'ops/s'] : ['ops/s'];
    // Opened in the unit of the figure that is judged.
    const judged = comparison.rows.find((row) => row.judged && (!isLoad || subject(row) === overlay.title));
    const first = judged && units.includes(judged.unit) ? judged.unit : units[0];
    const rate = (unit) =>
      Object.assign({}, axis, {
        label: titles[0],
        unit,
        series: overlay.lines.map((one) => rateLine(one.series, unit, look(one))),
      });
    const drawn = picture(
      rateId,
      titles[0],
      rate(first),
      units.length > 1 ? [choice('Unit', units, first, (unit) => drawn.show(rate(unit)))] : [],
    );
    const panels = [drawn.panel];
    if (overlay.lines.some((one) => one.series.p99_ms.some((value) => value !== null))) {
      const names = ['p99', 'p50', 'max'];
      const latency = (name) =>
        Object.assign({}, axis, {
          label: titles[1],
          unit: 'ms',
          axisName: name + ', ms',
          log: true,
          series: overlay.lines.map((one) => latencyLine(one.series, name, look(one))),
        });
      const second = picture(latencyId, titles[1], latency('p99'), [
        choice('Percentile', names, 'p99', (name) => second.show(latency(name))),
      ]);
      panels.push(second.panel);
    }
    return panels;
  }

  function loads(overlays, comparisons) {
    if (!overlays.loads.length) return null;
    const box = h('div', { class: 'report-columns' });
    const several = comparisons.length > 1;
    const name = (one) =>
      (several ? comparisons[one.comparison].b.label + ' against ' + comparisons[one.comparison].a.label + ': ' : '') +
      one.title;
    const select = h(
      'select',
      { 'aria-label': 'Load', onchange: () => show() },
      overlays.loads.map((one, at) => h('option', { value: at }, name(one))),
    );
    const show = () =>
      box.replaceChildren(
        ...curves(
          overlays.loads[Number(select.value)],
          comparisons[overlays.loads[Number(select.value)].comparison],
          Charts.group(),
          ['load-rate', 'load-latency'],
          ['Throughput', 'Latency'],
          true,
        ),
      );
    const panel = section(
      'loads',
      'Load by load, from its start',
      h('p', { class: 'no-print' }, select),
      box,
      ...(overlays.loads_left_out
        ? [h('p', { class: 'note' }, overlays.loads_left_out + ' more loads are in the table.')]
        : []),
    );
    requestAnimationFrame(show);
    return panel;
  }

  function trend(one) {
    if (!one || !one.rows.length) return null;
    const box = h('div', {});
    const order = [...one.rows.keys()].sort((a, b) => one.rows[b].changes.length - one.rows[a].changes.length);
    const select = h(
      'select',
      { 'aria-label': 'History', onchange: () => show() },
      order.map((at) =>
        h(
          'option',
          { value: at },
          one.rows[at].what + ', ' + one.rows[at].figure + (one.rows[at].changes.length ? ' (changed)' : ''),
        ),
      ),
    );
    const categories = one.runs.map((run) => String(run.id));
    let chart = null;
    const show = () => {
      const row = one.rows[Number(select.value)];
      const options = {
        label: 'History of ' + row.what,
        unit: row.unit,
        x: 'category',
        xLabel: 'run',
        categories,
        height: 220,
        series: [
          {
            name: row.figure,
            x: row.values.map(([place]) => place),
            y: row.values.map(([, value]) => value),
            points: true,
          },
        ],
        marks: row.changes.map((change_) => {
          const at = one.runs.findIndex((run) => run.id === change_.run.id) - 0.5;
          const text = change_.verdict.replaceAll('-', ' ') + ' from run ' + change_.run.id;
          return { at, severity: verdictClass(change_.verdict) === 'worse' ? 'error' : 'said', name: text, text };
        }),
      };
      if (chart) chart.update(options);
      else chart = new Charts.Line(box, options);
    };
    const panel = section('trend', 'History of ' + one.plan, h('p', { class: 'no-print' }, select), box);
    requestAnimationFrame(show);
    return panel;
  }

  function sideLine(name, side) {
    const runs = side.runs.map(
      (run) =>
        'run ' +
        run.id +
        ' ' +
        run.name +
        ', ' +
        Charts.clock(run.created_us, true) +
        ' UTC' +
        (run.imported_from ? ', imported from ' + run.imported_from : ''),
    );
    return (
      name +
      ': ' +
      (side.target ? side.target + ' in ' : '') +
      runs.slice(0, 4).join('; ') +
      (runs.length > 4 ? '; ' + (runs.length - 4) + ' more' : '')
    );
  }

  // Shows a comparison below `root`. `document_` is what the collector makes of an answer.
  function show(root, document_) {
    const { answer, overlays } = document_;
    const group = Charts.group();
    const first = answer.comparisons[0];
    const title = answer.trend
      ? 'Trend of ' + answer.trend.plan
      : answer.comparisons.map((one) => one.b.label + ' against ' + one.a.label).join(', ');
    const heading = answer.comparisons.flatMap((one) => [
      ...(one === first || one.a.label !== first.a.label ? [sideLine('A', one.a)] : []),
      sideLine('B', one.b),
    ]);
    const whole = overlays.runs.flatMap((one, at) =>
      curves(
        one,
        answer.comparisons[one.comparison],
        group,
        ['whole-rate-' + at, 'whole-latency-' + at],
        ['Throughput of the whole runs', 'Latency of the whole runs'],
        false,
      ),
    );
    root.classList.add('report');
    root.replaceChildren(
      h(
        'header',
        {},
        h('h1', {}, title || 'Comparison'),
        heading.map((line) => h('p', { class: 'heading' }, line)),
        card(document_.card, false),
      ),
      ...answer.comparisons.map((one, at) => ratios(one, at, document_.figures)).filter(Boolean),
      ...[loads(overlays, answer.comparisons), trend(answer.trend)].filter(Boolean),
      ...(whole.length ? [h('div', { class: 'report-columns' }, whole)] : []),
      ...document_.tables.map(textTable),
      h(
        'p',
        { class: 'note' },
        'Made by benchmesh ' + document_.version + '. Drag over a chart to zoom, double-click to see all.',
      ),
    );
  }

  return { show };
})();
