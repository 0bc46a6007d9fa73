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

  // A chart with its numbers beneath. `show` draws other options in its place.
  function figured(id, options) {
    const box = h('div', {});
    const beneath = h('div', {});
    let chart = null;
    const show = (shown) => {
      beneath.replaceChildren(Charts.numbers(shown), ...(shown.note ? [h('p', { class: 'note' }, shown.note)] : []));
      if (chart) chart.update(shown);
      else chart = new Charts.Line(box, shown);
    };
    // Laid out first: a chart is as wide as its panel.
    requestAnimationFrame(() => show(options));
    return { box: h('div', { id, class: 'figured' }, box, beneath), show };
  }

  // A chart in a panel, with its choices at the right of the title.
  function picture(id, title, options, choices) {
    const { box, show } = figured(id + '-chart', options);
    const panel = h(
      'section',
      { class: 'panel', id, 'aria-labelledby': id + '-title' },
      h('header', {}, h('h2', { id: id + '-title' }, title), h('span', { class: 'right no-print' }, choices || [])),
      box,
    );
    return { panel, show };
  }

  const RATES = ['MiB/s', 'ops/s'];
  const LATENCIES = ['p99', 'p50', 'max'];
  const some = (values) => values.some((value) => value !== null);

  // One operation's rate as a line. An operation without bytes has no line in MiB/s.
  function rateLine(series, unit, look) {
    const isOps = unit === 'ops/s';
    const y = isOps ? series.ops_per_s : series.mib_per_s;
    const scaled = (ends) =>
      ends.map((end, at) =>
        end === null || y[at] === null ? null : isOps ? end : (end * y[at]) / (series.ops_per_s[at] || 1),
      );
    return Object.assign({ x: series.at_s, y, least: scaled(series.ops_least), most: scaled(series.ops_most) }, look);
  }

  function latencyLine(series, name, look) {
    const most = name === 'p99' ? { least: series.p99_ms, most: series.p99_most_ms } : {};
    return Object.assign({ x: series.at_s, y: series[name + '_ms'] }, most, look);
  }

  // The seconds that each point of a step covers: at its end perhaps less than before.
  function widths(step, series) {
    return series.at_s.map((at) => Math.max(0, Math.min(step.bucket_s, step.until_s - at)));
  }

  // A load with fewer points is told better by the tables.
  const MIN_POINTS = 3;
  const SHOWN_LOADS = 12;
  const SHOWN_REPEATS = 6;

  // Steps that differ in their target, repeat or loop only, in the order of the plan.
  function loadsOf(pictures) {
    const loads = new Map();
    for (const step of pictures.steps) {
      if (!step.series.length) continue;
      if (!loads.has(step.load)) loads.set(step.load, []);
      loads.get(step.load).push(step);
    }
    return [...loads].map(([title, steps]) => ({ title, steps }));
  }

  // The hue is the target, the dash the operation: in all charts of the report.
  function looks(pictures) {
    const targets = [...new Set(pictures.steps.map((step) => step.target))];
    return (step, series, ops) => {
      const op = ops.length > 1 ? series.name : '';
      return {
        name: [step.target, op].filter(Boolean).join(' ') || series.name,
        colour: targets.indexOf(step.target) % 8,
        dash: ops.indexOf(series.name),
      };
    };
  }

  function opsOf(steps) {
    return [...new Set(steps.flatMap((step) => step.series.map((series) => series.name)))];
  }

  // The unit of the rate in which the card answers for one of these steps; null if it does not.
  function answeredIn(document_, steps) {
    const ids = new Set(steps.map((step) => step.step_id));
    const found = document_.card.loads.find(
      (one) => RATES.includes(one.unit) && (one.steps || []).some((id) => ids.has(id)),
    );
    return found ? found.unit : null;
  }

  // One panel per load: its rate and its latency, with its targets laid over each other from their starts. Its rate is
  // in the unit of the card until one is chosen.
  function load(one, at, pictures, look, cursor, units, own) {
    const ops = opsOf(one.steps);
    const zoomGroup = Charts.group();
    const repeats = new Map();
    const lines = [];
    let left = 0;
    for (const step of one.steps) {
      const repeat = repeats.get(step.target) || 0;
      repeats.set(step.target, repeat + 1);
      if (repeat >= SHOWN_REPEATS) {
        left += 1;
        continue;
      }
      for (const series of step.series) {
        const own = Object.assign({}, series, { at_s: series.at_s.map((at) => at - step.from_s) });
        const how = { thin: repeat > 0, width: widths(step, series) };
        lines.push({ series: own, look: Object.assign(look(step, series, ops), how) });
      }
    }
    const marks = one.steps.flatMap((step) =>
      pictures.drawnMarks
        .filter((mark) => mark.at >= step.from_s && mark.at <= step.until_s)
        .map((mark) =>
          Object.assign({}, mark, {
            at: mark.at - step.from_s,
            text: [step.target, mark.text].filter(Boolean).join(': '),
          }),
        ),
    );
    const axis = {
      x: 'time',
      xLabel: 'from the start of the load',
      group: cursor,
      zoomGroup,
      bucket: Math.max(...one.steps.map((step) => step.bucket_s)),
      extent: [0, Math.max(1, ...one.steps.map((step) => step.until_s - step.from_s))],
      marks: marks.sort((a, b) => a.at - b.at),
      height: 200,
    };
    // A load without bytes shows its operations, whatever unit is chosen.
    const unit = () => (lines.some((line) => some(line.series.mib_per_s)) ? units.rate || own : 'ops/s');
    const rate = () =>
      Object.assign({}, axis, {
        label: one.title + ': rate',
        unit: unit(),
        series: lines.map((line) => rateLine(line.series, unit(), line.look)).filter((line) => some(line.y)),
      });
    const latency = () =>
      Object.assign({}, axis, {
        label: one.title + ': latency',
        unit: 'ms',
        axisName: units.latency + ', ms',
        log: true,
        series: lines.map((line) => latencyLine(line.series, units.latency, line.look)).filter((line) => some(line.y)),
      });
    const id = 'load-' + at;
    const charts = [
      lines.some((line) => some(line.series.ops_per_s) || some(line.series.mib_per_s)) && [
        rate,
        figured(id + '-rate', rate()),
      ],
      lines.some((line) => some(line.series.p99_ms)) && [latency, figured(id + '-latency', latency())],
    ].filter(Boolean);
    const states = one.steps.filter((step) => step.state !== 'done');
    const panel = h(
      'section',
      { class: 'panel load', id, 'aria-labelledby': id + '-title' },
      h(
        'header',
        {},
        h('h3', { id: id + '-title' }, one.title),
        states.map((step) =>
          h('span', { class: 'chip ' + step.state }, [step.target, step.state].filter(Boolean).join(' ')),
        ),
      ),
      h(
        'div',
        { class: 'pair' },
        charts.map(([, chart]) => chart.box),
      ),
      left ? h('p', { class: 'note' }, left + ' more repeats are in the tables.') : null,
    );
    return { panel, draw: () => charts.forEach(([options, chart]) => chart.show(options())) };
  }

  function loads(document_, look) {
    const { pictures } = document_;
    const drawable = (step) => step.series.some((series) => series.at_s.length >= MIN_POINTS);
    const all = loadsOf(pictures);
    const wanted = all.filter((one) => one.steps.some(drawable));
    if (!wanted.length) return null;
    const movesBytes = (one) => one.steps.some((step) => step.series.some((series) => some(series.mib_per_s)));
    // A load that the card leaves out is drawn like the first that it answers for.
    const usual = answeredIn(document_, pictures.steps) || RATES[0];
    const unitOf = (one) => answeredIn(document_, one.steps) || usual;
    const answered = new Set(wanted.filter(movesBytes).map(unitOf));
    const units = { rate: answered.size === 1 ? [...answered][0] : null, latency: LATENCIES[0] };
    const cursor = Charts.group();
    const drawn = [];
    const box = h('div', { class: 'loads' });
    const more = h('p', {});
    const draw = (until) => {
      for (const one of wanted.slice(drawn.length, until))
        drawn.push(load(one, drawn.length, pictures, look, cursor, units, unitOf(one)));
      box.replaceChildren(...drawn.map((one) => one.panel));
      const left = wanted.length - drawn.length;
      more.replaceChildren(
        left
          ? h(
              'button',
              { type: 'button', class: 'no-print', onclick: () => draw(wanted.length) },
              'Draw ' + left + ' more loads',
            )
          : '',
      );
    };
    draw(SHOWN_LOADS);
    const set = (key) => (name) => {
      units[key] = name;
      for (const one of drawn) one.draw();
    };
    const hasBytes = wanted.some(movesBytes);
    const short = all.length - wanted.length;
    const isWide = wanted.some((one) => one.steps.some((step) => step.bucket_s > 1));
    return h(
      'section',
      { id: 'loads', 'aria-labelledby': 'loads-title' },
      h(
        'header',
        { class: 'loads-head' },
        h('h2', { id: 'loads-title' }, 'Load by load'),
        h(
          'span',
          { class: 'right no-print' },
          hasBytes ? choice('Rate', RATES, units.rate, set('rate')) : null,
          ' ',
          choice('Latency', LATENCIES, units.latency, set('latency')),
        ),
      ),
      box,
      more,
      isWide
        ? h(
            'p',
            { class: 'note' },
            'A line is the mean of each point; the shade spans the slowest and the fastest second within it, and for p99 it reaches to the worst second.',
          )
        : null,
      short
        ? h(
            'p',
            { class: 'note' },
            short + (short === 1 ? ' load' : ' loads') + ' of less than ' + MIN_POINTS + ' s: in the tables.',
          )
        : null,
    );
  }

  // The run from its start to its end: what the daemons and hosts did while which load ran. No line crosses steps.
  function wholeRun(document_, look) {
    const { pictures } = document_;
    const group = Charts.group();
    const bands = pictures.steps.map((step) => ({
      from: step.from_s,
      until: step.until_s,
      name: step.ordinal,
      title: step.title,
    }));
    const axis = {
      x: 'time',
      xLabel: 'from the start of the run',
      originUs: pictures.from_us,
      group,
      bands,
      marks: pictures.drawnMarks,
      extent: [0, Math.max(1, (pictures.until_us - pictures.from_us) / 1e6)],
    };
    const sampled = Object.assign({}, axis, { bucket: 0, gap: Math.max(5, axis.extent[1] / 100) });
    const parts = [rates(pictures, axis, look, answeredIn(document_, pictures.steps))];
    parts.push(
      usage('daemons', 'Daemons', pictures.daemons, daemonName, sampled, pictures.daemons_left_out, {
        CPU: ['% of a CPU', (daemon) => daemon.cpu_percent],
        memory: ['resident MiB', (daemon) => daemon.rss_mib],
      }),
      usage(
        'hosts',
        'Hosts',
        pictures.hosts,
        (host) => host.host,
        Object.assign({ top: 100 }, sampled),
        pictures.hosts_left_out,
        {
          CPU: ['% of all CPUs', (host) => host.busy_percent],
          'I/O wait': ['% of all CPUs', (host) => host.iowait_percent],
        },
      ),
      heat(pictures, axis),
    );
    const drawn = parts.filter(Boolean);
    if (!drawn.length) return null;
    return h(
      'section',
      { id: 'whole-run', 'aria-labelledby': 'whole-run-title' },
      h('header', { class: 'loads-head' }, h('h2', { id: 'whole-run-title' }, 'The whole run')),
      h('div', { class: 'report-columns' }, drawn),
    );
  }

  // The rates of all loads, one after the other: a line per target and operation, broken between steps.
  function rates(pictures, axis, look, answered) {
    const options = (unit) => {
      const lines = new Map();
      for (const { steps } of loadsOf(pictures)) {
        const ops = opsOf(steps);
        for (const step of steps)
          for (const series of step.series) {
            const { name, colour, dash } = look(step, series, ops);
            const key = step.target || name;
            if (!lines.has(key + dash)) lines.set(key + dash, { name: key, colour, dash, pieces: [] });
            lines.get(key + dash).pieces.push(rateLine(series, unit, { width: widths(step, series) }));
          }
      }
      const joined = [...lines.values()].map(({ name, colour, dash, pieces }) => {
        pieces.sort((a, b) => a.x[0] - b.x[0]);
        const starts = new Set();
        let points = 0;
        for (const { x } of pieces) {
          starts.add(points);
          points += x.length;
        }
        const all = (key) => pieces.flatMap((one) => one[key]);
        return { name, colour, dash, starts, x: all('x'), y: all('y'), width: all('width') };
      });
      return Object.assign({}, axis, {
        label: 'Rate of the whole run',
        unit,
        bucket: Math.max(...pictures.steps.map((step) => step.bucket_s)),
        series: joined.filter((line) => some(line.y)),
      });
    };
    const steps = pictures.steps.filter((step) => step.series.length);
    if (!steps.length) return null;
    const names = steps.some((step) => step.series.some((series) => some(series.mib_per_s))) ? RATES : ['ops/s'];
    const first = names.includes(answered) ? answered : names[0];
    const own = picture(
      'rate',
      'Rate',
      options(first),
      names.length > 1 ? [choice('Unit', names, first, (unit) => own.show(options(unit)))] : [],
    );
    return own.panel;
  }

  function heat(pictures, axis) {
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
        'Service time of all operations. Darker: a larger share of the operations of that time.' +
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
          group: axis.group,
          marks: axis.marks,
          xLabel: axis.xLabel,
          extent: axis.extent,
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

  // What daemons or hosts used, in one panel with a choice of the figure.
  function usage(id, title, all, nameOf, axis, leftOut, figures) {
    if (!all.length) return null;
    const names = distinct(all.map(nameOf));
    const options = (name) => {
      const [unit, values] = figures[name];
      return Object.assign({}, axis, {
        label: title + ': ' + name,
        unit,
        series: all.map((one, at) => ({
          name: names[at],
          x: one.at_s,
          y: values(one),
          dash: Math.floor(at / 8),
          hidden: at >= SHOWN_AT_FIRST,
        })),
        note: leftOut > 0 ? 'The busiest are shown; ' + leftOut + ' more are in the tables.' : null,
      });
    };
    const choices = Object.keys(figures);
    const own = picture(id, title, options(choices[0]), [
      choice('Figure', choices, choices[0], (name) => own.show(options(name))),
    ]);
    return own.panel;
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
            dash: 1,
            colour: 5,
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
        { name: 'response p99', x, y: loads.map((load) => load.response_p99_ms), points: true, colour: 0 },
        { name: 'response p50', x, y: loads.map((load) => load.response_p50_ms), points: true, colour: 0, dash: 1 },
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
    const states = (lines) => lines.map((line) => h('li', { class: 'state-' + line.state }, line.text));
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
      one.objectives.length
        ? h('ul', { class: 'objectives', 'aria-label': 'Objectives' }, states(one.objectives))
        : null,
      one.loads.length
        ? h(
            'table',
            { class: 'answers' },
            h('caption', { class: 'hidden' }, 'Answer by load'),
            h(
              'thead',
              {},
              h(
                'tr',
                {},
                ['load', 'answer', 'trust'].map((name) => h('th', { scope: 'col' }, name)),
              ),
            ),
            h('tbody', {}, one.loads.map(load)),
          )
        : null,
      one.loads_left_out ? h('p', { class: 'note' }, one.loads_left_out + ' more loads in the tables.') : null,
      one.lists.map((list) =>
        h(
          'div',
          { class: 'beside' },
          h('h2', {}, list.title),
          h(
            'ul',
            {},
            states(list.lines),
            list.more ? h('li', {}, list.more + ' more: ', h('code', {}, list.command)) : null,
          ),
        ),
      ),
      one.next ? h('p', { class: 'next' }, 'Next: ', h('code', {}, one.next)) : null,
    );
  }

  // Shows a report below `root`. `document_` is what the collector makes of a run.
  function show(root, document_) {
    const { pictures } = document_;
    pictures.drawnMarks = pictures.marks.map((mark) => ({
      at: mark.at_s,
      severity: mark.kind === 'mark' ? 'said' : mark.severity,
      name: mark.kind === 'mark' ? mark.message : null,
      text: [mark.kind, mark.agent, mark.message].filter(Boolean).join(': '),
    }));
    const look = looks(pictures);
    const drawn = [loads(document_, look), wholeRun(document_, look)];
    const grids = [...pictures.grids.map(grid), ...pictures.curves.map(curve), links(pictures)].filter(Boolean);
    // What was found stands above all that shows it.
    const all = document_.tables.map(textTable);
    const isFound = (at) => document_.tables[at].title === 'Findings';
    const [found, tables] = [all.filter((one, at) => isFound(at)), all.filter((one, at) => !isFound(at))];
    const contents = h(
      'nav',
      { 'aria-label': 'Contents' },
      [
        ['Load by load', drawn[0]],
        ['The whole run', drawn[1]],
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
      ...drawn.filter(Boolean),
      pictures.steps.some((step) => step.series.length)
        ? ''
        : h('p', { class: 'empty' }, 'No second of this run has been stored, so there is nothing to draw over time.'),
      ...(grids.length ? [h('div', { class: 'report-columns' }, grids)] : []),
      ...tables,
      h(
        'p',
        { class: 'note' },
        'Made by benchmesh ' +
          document_.version +
          '. Drag over a chart to zoom, double-click to see all; the cursor tells the values of all charts of one time axis.',
      ),
    );
  }

  return { show, card, choice, picture, section, textTable, rateLine, latencyLine };
})();
