// The report of one run: its tables and pictures, the same in the live page and in the report file.
'use strict';
const BenchmeshReport = (() => {
  const { h } = Charts;
  const SHOWN_AT_FIRST = 10;

  function section(id, title, ...content) {
    return h(
      'section',
      { class: 'panel', id, 'aria-labelledby': id + '-title' },
      h('header', {}, h('h2', { id: id + '-title' }, title)),
      ...content,
    );
  }

  // Buttons of which one is pressed.
  function choice(label, names, chosen, act) {
    const box = h('span', { class: 'choice', role: 'group', 'aria-label': label });
    const press = (name) =>
      [...box.children].forEach((button) => button.setAttribute('aria-pressed', String(button.textContent === name)));
    box.append(
      ...names.map((name) =>
        h(
          'button',
          {
            type: 'button',
            onclick: () => {
              press(name);
              act(name);
            },
          },
          name,
        ),
      ),
    );
    press(chosen);
    return box;
  }

  // A chart in a panel, with its choices at the right of the title and its numbers beneath.
  function picture(id, title, options, choices) {
    const box = h('div', {});
    const beneath = h('div', {});
    const panel = h(
      'section',
      { class: 'panel', id, 'aria-labelledby': id + '-title' },
      h('header', {}, h('h2', { id: id + '-title' }, title), h('span', { class: 'right no-print' }, choices || [])),
      box,
      beneath,
    );
    let chart = null;
    const show = (shown) => {
      beneath.replaceChildren(Charts.numbers(shown), ...(shown.note ? [h('p', { class: 'note' }, shown.note)] : []));
      if (chart) chart.update(shown);
      else chart = new Charts.Line(box, shown);
    };
    // Laid out first: a chart is as wide as its panel.
    requestAnimationFrame(() => show(options));
    return { panel, show };
  }

  function time(pictures, shared, more) {
    return Object.assign(
      {
        x: 'time',
        originUs: pictures.from_us,
        group: shared.group,
        bucket: pictures.bucket_s,
        bands: shared.bands,
        marks: shared.marks,
        extent: [0, Math.max(1, (pictures.until_us - pictures.from_us) / 1e6)],
      },
      more,
    );
  }

  function loadSeries(series, what) {
    const values = what === 'ops/s' ? series.ops_per_s : series.mib_per_s;
    const scale = (values, by) =>
      values.map((value, at) => (by[at] === 0 ? 0 : value * (series.mib_per_s[at] / by[at])));
    return {
      name: series.name,
      x: series.at_s,
      y: values,
      least: what === 'ops/s' ? series.ops_least : scale(series.ops_least, series.ops_per_s),
      most: what === 'ops/s' ? series.ops_most : scale(series.ops_most, series.ops_per_s),
    };
  }

  function hasBytes(all) {
    return all.some((series) => series.mib_per_s.some((value) => value > 0));
  }

  function latencySeries(series) {
    return [
      { name: 'p50', x: series.at_s, y: series.p50_ms, colour: 2 },
      { name: 'p99', x: series.at_s, y: series.p99_ms, least: series.p99_ms, most: series.p99_most_ms, colour: 0 },
      { name: 'max', x: series.at_s, y: series.max_ms, thin: true, colour: 1 },
    ];
  }

  const ENVELOPE = 'A line is the mean of each point; the shade spans the slowest and the fastest second within it.';

  function throughput(id, title, all, axis) {
    const names = hasBytes(all) ? ['MiB/s', 'ops/s'] : ['ops/s'];
    const options = (unit) =>
      Object.assign({}, axis, {
        label: title,
        unit,
        series: all.map((series) => loadSeries(series, unit)),
        note: axis.bucket > 1 ? ENVELOPE : null,
      });
    const own = picture(
      id,
      title,
      options(names[0]),
      names.length > 1 ? [choice('Unit', names, names[0], (unit) => own.show(options(unit)))] : [],
    );
    return own.panel;
  }

  function latency(id, title, all, axis) {
    const measured = all.filter((series) => series.p99_ms.some((value) => value !== null));
    if (!measured.length) return null;
    const every = 'all: p99';
    const options = (name) =>
      Object.assign({}, axis, {
        label: title,
        unit: 'ms',
        log: true,
        series:
          name === every
            ? measured.map((series) => ({
                name: series.name,
                x: series.at_s,
                y: series.p99_ms,
                least: series.p99_ms,
                most: series.p99_most_ms,
              }))
            : latencySeries(measured.find((series) => series.name === name)),
        note: 'Logarithmic. Percentiles of a point are means of its seconds, weighted by operations; the shade reaches to the worst second, max is exact.',
      });
    const first = measured.length > 1 ? every : measured[0].name;
    const select = h(
      'select',
      { 'aria-label': 'Operation', onchange: () => own.show(options(select.value)) },
      [...(measured.length > 1 ? [every] : []), ...measured.map((series) => series.name)].map((name) =>
        h('option', { value: name }, name),
      ),
    );
    const own = picture(id, title, options(first), measured.length > 1 ? [select] : []);
    return own.panel;
  }

  function heat(pictures, shared) {
    if (!pictures.heat) return null;
    const { heat } = pictures;
    const box = h('div', {});
    const sums = new Array(heat.levels_ms.length).fill(0);
    for (const [, level, count] of heat.cells) sums[level] += count;
    const all = sums.reduce((sum, one) => sum + one, 0);
    const panel = section(
      'heat',
      'Latency heat map',
      box,
      h(
        'p',
        { class: 'note' },
        'Service time in ms, all operations. Darker: a larger share of the operations of that time.' +
          (heat.one_of > 1 ? ' Counted from one of ' + heat.one_of + ' seconds.' : ''),
      ),
      h(
        'details',
        { class: 'numbers' },
        h('summary', {}, 'Numbers'),
        Charts.table(
          [
            { title: 'up to, ms', right: true },
            { title: 'operations', right: true },
            { title: 'share, %', right: true },
          ],
          sums.map((sum, level) => [
            Charts.figure(heat.levels_ms[level]),
            Charts.figure(sum),
            Charts.figure((100 * sum) / all),
          ]),
          { label: 'Operations by latency' },
        ),
      ),
    );
    requestAnimationFrame(
      () =>
        new Charts.Heat(box, {
          label: 'Latency heat map',
          levels: heat.levels_ms,
          cells: heat.cells,
          bucket: heat.bucket_s,
          group: shared.group,
          marks: shared.marks,
          extent: [0, Math.max(1, (pictures.until_us - pictures.from_us) / 1e6)],
        }),
    );
    return panel;
  }

  function daemonName(daemon) {
    return [daemon.host, daemon.name + (daemon.instance ? ' ' + daemon.instance : '')].join(' ');
  }

  function distinct(names) {
    const seen = new Map();
    return names.map((name) => {
      const count = (seen.get(name) || 0) + 1;
      seen.set(name, count);
      return count > 1 ? name + ' #' + count : name;
    });
  }

  function usage(id, title, all, unit, values, axis, note) {
    if (!all.length) return null;
    const names = distinct(all.map(daemonName));
    const series = all.map((daemon, at) => ({
      name: names[at],
      x: daemon.at_s,
      y: values(daemon),
      hidden: at >= SHOWN_AT_FIRST,
    }));
    return picture(
      id,
      title,
      Object.assign({}, axis, {
        label: title,
        unit,
        series,
        bucket: 0,
        gap: Math.max(5, 4 * ((axis.extent[1] - axis.extent[0]) / 400)),
        note,
      }),
      [],
    ).panel;
  }

  function hosts(pictures, axis) {
    if (!pictures.hosts.length) return null;
    const series = pictures.hosts.map((host, at) => ({
      name: host.host,
      x: host.at_s,
      y: host.busy_percent,
      hidden: at >= SHOWN_AT_FIRST,
    }));
    const options = Object.assign({}, axis, {
      label: 'Hosts: CPU busy',
      unit: '%',
      top: 100,
      series,
      bucket: 0,
      gap: Math.max(5, 4 * ((axis.extent[1] - axis.extent[0]) / 400)),
      note: 'Of all CPUs of the host, without waiting for I/O.',
    });
    return picture('hosts', 'Hosts: CPU busy', options, []).panel;
  }

  // A step of one's choice, in finer points than the whole run has.
  function steps(pictures) {
    const fine = pictures.steps.filter((step) => step.series.length);
    if (!fine.length) return null;
    const box = h('div', { class: 'report-columns' });
    const select = h(
      'select',
      { 'aria-label': 'Step', onchange: () => show() },
      fine.map((step, at) => h('option', { value: at }, step.ordinal + '  ' + step.title)),
    );
    const show = () => {
      const step = fine[Number(select.value)];
      const axis = {
        x: 'time',
        originUs: pictures.from_us,
        group: Charts.group(),
        bucket: step.bucket_s,
        extent: [step.from_s, Math.max(step.until_s, step.from_s + 1)],
        height: 170,
      };
      box.replaceChildren(
        ...[
          throughput('step-load', 'Load', step.series, axis),
          latency('step-latency', 'Latency', step.series, axis),
        ].filter(Boolean),
      );
    };
    const panel = h(
      'section',
      { class: 'panel', id: 'steps', 'aria-labelledby': 'steps-title' },
      h('header', {}, h('h2', { id: 'steps-title' }, 'Step by step'), h('span', { class: 'right' }, select)),
      box,
    );
    requestAnimationFrame(show);
    return panel;
  }

  function quantity(text) {
    const found = /^([0-9.]+)([a-zA-Z]*)$/.exec(text);
    if (!found) return null;
    const factor = {
      '': 1,
      s: 1,
      b: 1,
      k: 1024,
      kib: 1024,
      m: 1048576,
      mib: 1048576,
      g: 1073741824,
      gib: 1073741824,
      t: 1099511627776,
    }[found[2].toLowerCase()];
    return factor ? Number(found[1]) * factor : null;
  }

  // A table of results as a heat map and as lines over its ordered key.
  function grid(one, at) {
    if (!one.figures.length) return null;
    const id = 'grid-' + at;
    const tableBox = h('div', {}),
      chartBox = h('div', {});
    const byRows = one.axis === 'rows';
    const [key, labels, otherKey, others] = byRows
      ? [one.row_key, one.rows, one.column_key, one.columns]
      : [one.column_key, one.columns, one.row_key, one.rows];
    const places = labels.map(quantity);
    const isNumber = places.every((place) => place !== null && place > 0);
    const isScale = key === 'clients' && isNumber;
    let chart = null;
    const show = (title) => {
      const { values } = one.figures.find((figure) => figure.title === title);
      const along = (place) => (byRows ? values.map((row) => row[place]) : values[place]);
      const columns = one.columns.map((column) => column || title);
      tableBox.replaceChildren(
        Charts.matrix({
          label: one.title + ', ' + title,
          rowKey: one.row_key,
          rows: one.rows,
          columnKey: one.column_key,
          columns,
          values,
        }),
      );
      const series = others.map((other, place) => ({
        name: other ? (otherKey === 'target' || otherKey === 'mode' ? other : otherKey + ' ' + other) : title,
        x: isNumber ? places : labels.map((_, index) => index),
        y: along(place),
        points: true,
      }));
      if (isScale && /\/s$/.test(title)) {
        const first = along(0)[0];
        if (first)
          series.push({
            name: 'in proportion',
            x: places,
            y: places.map((place) => (first / places[0]) * place),
            dashed: true,
            colour: 8,
          });
      }
      const options = {
        label: one.title + ', ' + title,
        unit: title,
        series,
        height: 190,
        xLabel: key,
        categories: labels,
        x: isScale ? 'number' : isNumber ? 'log' : 'category',
        xTicks: isNumber ? places.map((place, index) => [place, labels[index]]) : null,
      };
      if (chart) chart.update(options);
      else chart = new Charts.Line(chartBox, options);
    };
    const names = one.figures.map((figure) => figure.title);
    const notes = [...one.notes, ...(one.repeats > 1 ? ['Means of up to ' + one.repeats + ' repeats.'] : [])];
    const panel = h(
      'section',
      { class: 'panel', id, 'aria-labelledby': id + '-title' },
      h(
        'header',
        {},
        h('h2', { id: id + '-title' }, one.title),
        h('span', { class: 'right no-print' }, names.length > 1 ? choice('Figure', names, names[0], show) : []),
      ),
      chartBox,
      tableBox,
      notes.map((note) => h('p', { class: 'note' }, note)),
    );
    requestAnimationFrame(() => show(names[0]));
    return panel;
  }

  function curve(one, at) {
    const loads = one.loads.filter((load) => load.ops_per_s !== null);
    if (!loads.length) return null;
    const x = loads.map((load) => load.ops_per_s);
    const knee = one.knee === null || one.knee === undefined ? null : one.loads[one.knee];
    const title = one.phase + ': ' + one.mode + (one.target ? ', ' + one.target : '') + ', load curve';
    const options = {
      label: title,
      unit: 'ms',
      log: true,
      x: 'number',
      xLabel: 'ops/s',
      height: 200,
      series: [
        { name: 'response p99', x, y: loads.map((load) => load.response_p99_ms), points: true },
        { name: 'response p50', x, y: loads.map((load) => load.response_p50_ms), points: true, colour: 2 },
      ],
      marks:
        knee && knee.ops_per_s !== null
          ? [
              {
                at: knee.ops_per_s,
                severity: 'said',
                name: 'knee',
                text: 'knee: ' + Charts.figure(knee.ops_per_s) + ' ops/s',
              },
            ]
          : [],
      note:
        (knee
          ? 'The knee: up to ' +
            Charts.figure(knee.ops_per_s) +
            ' ops/s the response time (p99) stays near its floor of ' +
            Charts.figure(one.floor_ms) +
            ' ms.'
          : 'No load stays near the floor of ' + Charts.figure(one.floor_ms) + ' ms.') +
        (one.client_limits && one.client_limits.length
          ? ' Beyond it the load is limited by the client (' + one.client_limits.join(', ') + ').'
          : ''),
    };
    return picture('curve-' + at, title, options, []).panel;
  }

  function links(pictures) {
    const all = pictures.links || [];
    if (!all.length) return null;
    const names = [...new Set(all.flatMap((link) => [link.from_agent, link.to_agent]))].sort();
    const grid = (value) =>
      names.map((from) =>
        names.map((to) => {
          const link = all.find((one) => one.from_agent === from && one.to_agent === to);
          return link ? (value(link) ?? null) : null;
        }),
      );
    const tables = [
      ['MiB/s', (link) => link.mib_per_s],
      ['round trip p50, us', (link) => link.rtt_p50_us],
    ]
      .map(([title, value]) => [title, grid(value)])
      .filter(([, values]) => values.flat().some((value) => value !== null))
      .map(([title, values]) => [
        h('h3', {}, title),
        Charts.matrix({
          label: 'Links, ' + title,
          rowKey: 'from',
          rows: names,
          columnKey: 'to',
          columns: names,
          values,
        }),
      ]);
    return section('links', 'Links', tables.flat());
  }

  function textTable(one, at) {
    return h(
      'section',
      { class: 'panel long', id: 'table-' + at, 'aria-labelledby': 'table-' + at + '-title' },
      h('header', {}, h('h2', { id: 'table-' + at + '-title' }, one.title || 'Run')),
      Charts.table(one.columns, one.rows, { label: one.title || 'Run' }),
      one.notes.map((note) => h('p', { class: 'note' }, note)),
    );
  }

  // The answer card: the same lines as in the terminal. `title` is left out where the page has its own.
  function card(one, title) {
    const states = (lines) =>
      lines.map((line) => h('li', { class: 'state-' + line.state }, line.text));
    const trusts = {
      proven: ['proven', 'good'],
      likely: ['likely', 'note'],
      'not-shown': ['not shown', 'note'],
      'cannot-tell': ['cannot tell', 'warning'],
    };
    const load = (one) => {
      const [words, state] = trusts[one.trust] || [];
      return h(
        'tr',
        {},
        h('th', { scope: 'row' }, one.load),
        h('td', {}, one.answer),
        h('td', {}, words ? h('span', { class: 'trust state-' + state }, words) : null, one.why ? ' ' + one.why : null),
      );
    };
    return h(
      'section',
      { class: 'card', 'aria-label': 'Answer' },
      title === false ? null : h('h1', {}, one.title || 'Run'),
      one.objectives.length ? h('ul', { class: 'objectives', 'aria-label': 'Objectives' }, states(one.objectives)) : null,
      one.loads.length
        ? h(
            'table',
            { class: 'answers' },
            h('caption', { class: 'hidden' }, 'Answer by load'),
            h('thead', {}, h('tr', {}, ['load', 'answer', 'trust'].map((name) => h('th', { scope: 'col' }, name)))),
            h('tbody', {}, one.loads.map(load)),
          )
        : null,
      one.loads_left_out ? h('p', { class: 'note' }, one.loads_left_out + ' more loads in the tables.') : null,
      one.lists.map((list) =>
        h(
          'div',
          { class: 'beside' },
          h('h2', {}, list.title),
          h('ul', {}, states(list.lines), list.more ? h('li', {}, list.more + ' more: ', h('code', {}, list.command)) : null),
        ),
      ),
      one.next ? h('p', { class: 'next' }, 'Next: ', h('code', {}, one.next)) : null,
    );
  }

  // Shows a report below `root`. `document_` is what the collector makes of a run.
  function show(root, document_) {
    const { pictures } = document_;
    const shared = {
      group: Charts.group(),
      bands: pictures.steps.map((step) => ({
        from: step.from_s,
        until: step.until_s,
        name: step.ordinal,
        title: step.title,
      })),
      marks: pictures.marks.map((mark) => ({
        at: mark.at_s,
        severity: mark.kind === 'mark' ? 'said' : mark.severity,
        name: mark.kind === 'mark' ? mark.message : null,
        text: [mark.kind, mark.agent, mark.message].filter(Boolean).join(': '),
      })),
    };
    const axis = time(pictures, shared, {});
    const notShown = (count, what) =>
      count > 0 ? 'The busiest are shown; ' + count + ' more ' + what + ' are in the tables.' : null;
    const parts = [];
    if (pictures.load.length) {
      parts.push(throughput('load', 'Throughput', pictures.load, axis));
      parts.push(latency('latency', 'Latency', pictures.load, axis));
      parts.push(heat(pictures, shared));
    }
    parts.push(
      usage(
        'daemons-cpu',
        'Daemons: CPU',
        pictures.daemons,
        '% of a CPU',
        (daemon) => daemon.cpu_percent,
        axis,
        notShown(pictures.daemons_left_out, 'daemons'),
      ),
    );
    parts.push(
      usage(
        'daemons-memory',
        'Daemons: resident memory',
        pictures.daemons,
        'MiB',
        (daemon) => daemon.rss_mib,
        axis,
        null,
      ),
    );
    parts.push(hosts(pictures, axis));
    const wide = [steps(pictures)];
    const grids = [...pictures.grids.map(grid), ...pictures.curves.map(curve), links(pictures)].filter(Boolean);
    // What was found stands above all that shows it.
    const all = document_.tables.map(textTable);
    const isFound = (at) => document_.tables[at].title === 'Findings';
    const [found, tables] = [all.filter((one, at) => isFound(at)), all.filter((one, at) => !isFound(at))];
    const drawn = parts.filter(Boolean);
    const contents = h(
      'nav',
      { 'aria-label': 'Contents' },
      [
        ['Over time', drawn[0]],
        ['Results by key', grids[0]],
        ['Tables', tables[0]],
      ]
        .filter(([, panel]) => panel)
        .map(([name, panel]) =>
          h(
            'a',
            {
              href: '#' + panel.id,
              onclick: (event) => {
                event.preventDefault();
                panel.scrollIntoView();
              },
            },
            name,
          ),
        ),
    );
    root.classList.add('report');
    root.replaceChildren(
      h('header', {}, card(document_.card)),
      contents,
      ...found,
      ...(drawn.length
        ? [h('div', { class: 'report-columns' }, drawn)]
        : [
            h('p', { class: 'empty' }, 'No second of this run has been stored, so there is nothing to draw over time.'),
          ]),
      ...wide.filter(Boolean),
      ...(grids.length ? [h('div', { class: 'report-columns' }, grids)] : []),
      ...tables,
      h(
        'p',
        { class: 'note' },
        'Made by benchmesh ' +
          document_.version +
          '. Drag over a chart to zoom, double-click to see all; charts of one time axis zoom together.',
      ),
    );
  }

  return { show, card, choice, picture, section, textTable };
})();
