// The live page. One event stream keeps the state up to date; each page draws from it.
'use strict';
(() => {
  const { h, figure, bytes, span, clock } = Charts;
  const MIB = 1048576;
  const main = document.getElementById('main');
  const status = document.getElementById('status');
  const warning = document.getElementById('warning');
  const state = { health: null, run: null, agents: [], daemons: [], hosts: [], events: [], runs: [] };
  // `received`: the topics that have come since the page was loaded.
  const stream = { source: null, connected: false, last: 0, received: new Set() };
  let view = null;

  async function get(path, options) {
    const response = await fetch(path, Object.assign({ headers: { Accept: 'application/json' } }, options));
    const text = await response.text();
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      throw new Error('the collector sent no JSON (status ' + response.status + ')');
    }
    if (!response.ok) throw new Error(answer.error || 'status ' + response.status);
    return answer;
  }

  // The stream is closed while the page is hidden, because a browser limits the connections to one host.
  function open() {
    if (stream.source || document.hidden) return;
    const source = (stream.source = new EventSource('/api/v1/stream'));
    source.onopen = () => {
      stream.connected = true;
      header();
    };
    source.onerror = () => {
      stream.connected = false;
      header();
      // The browser reconnects by itself, unless it was refused.
      if (source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(reopen, 3000);
      }
    };
    for (const topic of Object.keys(state)) {
      source.addEventListener(topic, (event) => {
        state[topic] = JSON.parse(event.data);
        stream.received.add(topic);
        stream.connected = true;
        stream.last = Date.now();
        if (topic === 'health') header();
        if (view && view.changed) view.changed(topic);
      });
    }
  }

  function close() {
    if (stream.source) stream.source.close();
    stream.source = null;
  }

  // A restarted collector has a new token, unless it keeps the token in a file: the form asks for it.
  async function reopen() {
    try {
      const response = await fetch('/api/v1/questions');
      if (response.status === 401) location.reload();
      else open();
    } catch {
      setTimeout(reopen, 3000);
    }
  }

  // The collector's state arrives every second.
  setInterval(() => {
    if (stream.connected && !document.hidden && Date.now() - stream.last > 10000) {
      stream.connected = false;
      header();
    }
  }, 5000);

  document.addEventListener('visibilitychange', () => {
    if (document.hidden) close();
    else open();
  });

  // What a list says while it is empty: before its first update it is not known to be.
  function noneOf(topic, none) {
    return stream.received.has(topic) ? none : 'Loading.';
  }

  // Shown on each page while it applies.
  function warn(text) {
    if (warning.textContent !== (text || ''))
      warning.replaceChildren(...(text ? [h('p', { class: 'banner warning', role: 'alert' }, text)] : []));
  }

  function header() {
    const { health } = state;
    warn(health && health.security_warning);
    const parts = [];
    if (!stream.connected)
      parts.push(h('span', {}, h('span', { class: 'dot-state off' }), 'no connection to the collector'));
    else if (health) {
      const absent = state.run && state.run.step ? state.run.step.clients_absent : 0;
      const agents = health.agents_attached + ' of ' + health.agents_known + ' agents';
      const dot = absent ? 'off' : health.agents_attached < health.agents_known ? 'wait' : 'on';
      const without = absent ? ', ' + absent + ' of the step without contact' : '';
      parts.push(h('span', {}, h('span', { class: 'dot-state ' + dot }), agents + without));
      if (health.queued_runs) parts.push(h('span', {}, health.queued_runs + ' queued'));
      if (health.archive) parts.push(h('span', { title: health.archive.server }, archived(health.archive)));
      parts.push(h('span', {}, 'database ' + bytes(health.database_bytes + health.wal_bytes)));
      parts.push(h('span', {}, clock(health.now_us) + ' UTC'));
    }
    status.replaceChildren(...parts);
  }

  function archived(archive) {
    if (!archive.waiting_runs) return 'archive up to date';
    const since = archive.oldest_waiting_us === null ? '' : ', since ' + clock(archive.oldest_waiting_us) + ' UTC';
    return 'archive: ' + archive.waiting_runs + (archive.waiting_runs === 1 ? ' run waits' : ' runs wait') + since;
  }

  // The state of a run. Only what ended whole is good.
  function stateChip(run) {
    const words = [run.state, run.stopping ? 'stopping' : run.partial ? 'partial' : ''].filter(Boolean).join(', ');
    return chip(words, run.partial && ['running', 'done'].includes(run.state) ? 'partial' : run.state);
  }

  function chip(text, kind) {
    return h('span', { class: 'chip ' + (kind || '') }, text);
  }

  /* The server's table of flags explains a flag; another version may have other flags. */
  function flagChip(name) {
    const row = Object.hasOwn(BenchmeshFlags, name) ? BenchmeshFlags[name] : { severity: 'warning', meaning: '' };
    return h('span', { class: 'chip ' + row.severity, title: row.meaning }, name);
  }

  function words(step) {
    const keys = Object.entries(step.params || {}).filter(([key]) =>
      ['size', 'bs', 'iodepth', 'numjobs', 'files', 'rate_iops', 'rate', 'streams'].includes(key),
    );
    return keys.map(([key, value]) => key + '=' + value).join(' ');
  }

  function stepName(step) {
    const place = step.target || step.link || step.peer;
    const params = words(step);
    return step.phase + ': ' + step.mode + (place ? ', ' + place : '') + (params ? ' (' + params + ')' : '');
  }

  const STATES = {
    planned: 'about to begin',
    prepare: 'laying out data',
    settle: 'settling',
    ready: 'all agents ready',
    armed: 'about to start',
    running: 'running',
    cleaning: 'cleaning up',
  };

  function panel(title, attributes, ...content) {
    const id = 'p-' + title.toLowerCase().replace(/[^a-z]+/g, '-');
    const { right, kind } = attributes || {};
    return h(
      'section',
      { class: 'panel ' + (kind || ''), 'aria-labelledby': id },
      h('header', {}, h('h2', { id }, title), right ? h('span', { class: 'right' }, right) : null),
      ...content,
    );
  }

  // A table with a fixed list of columns: [title, cell, class]. `most` rows are shown, and the others counted.
  function rows(label, columns, all, none, most = Infinity) {
    const items = all.slice(0, most);
    if (items.length < all.length)
      return h('div', {}, rows(label, columns, items, none), h('p', { class: 'note' }, all.length - most + ' more.'));
    if (!items.length) return h('p', { class: 'empty' }, none);
    return h(
      'div',
      { class: 'scroll tall', tabindex: '0', role: 'group', 'aria-label': label },
      h(
        'table',
        { class: 'data' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            columns.map(([title, , kind]) => h('th', { scope: 'col', class: kind || null }, title)),
          ),
        ),
        h(
          'tbody',
          {},
          items.map((item) =>
            h(
              'tr',
              {},
              columns.map(([title, cell, kind]) => h('td', { class: kind || null, 'data-label': title }, cell(item))),
            ),
          ),
        ),
      ),
    );
  }

  function bar(share) {
    const width = Math.max(0, Math.min(100, share * 100));
    return Charts.s(
      'svg',
      { class: 'bar', viewBox: '0 0 100 7', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      Charts.s('rect', { class: 'rest', width: 100, height: 7 }),
      Charts.s('rect', { width, height: 7 }),
    );
  }

  function eventRows(items) {
    return rows(
      'Events',
      [
        ['time, UTC', (event) => clock(event.at_us, true)],
        ['severity', (event) => chip(event.severity, event.severity)],
        ['kind', (event) => event.kind],
        ['agent', (event) => event.agent || ''],
        [
          'run',
          (event) => (event.run_id ? h('a', { href: '#/runs/' + event.run_id }, String(event.run_id)) : ''),
          'number',
        ],
        ['message', (event) => event.message, 'wrap'],
      ],
      items,
      'No event yet.',
    );
  }

  // Cards of ended runs. They are fetched one after the other, because each is a report of its own.
  const cards = new Map();
  let fetching = Promise.resolve();

  // A run that is resumed ends again, with another card. The run shown live tells how long it took, not when it ended.
  function cardKey(run) {
    return run.run_id + ':' + (run.ended_us === undefined ? 'took ' + run.elapsed_us : run.ended_us);
  }

  function fetchCard(run, isWanted, then, failed) {
    const key = cardKey(run);
    if (cards.has(key)) return then(cards.get(key));
    fetching = fetching
      .then(() => cards.get(key) || (isWanted() ? get('/api/v1/runs/' + run.run_id + '/card') : null))
      .then((card) => {
        if (!card) return;
        cards.set(key, card);
        if (isWanted()) then(card);
      })
      .catch(() => {
        if (failed && isWanted()) failed();
      });
  }

  // What a list says of a run: its first objective or load, and how it compares with the run before.
  function headline(card) {
    const first = card.objectives.find((one) => one.state === 'bad');
    const load = card.loads[0];
    const more = card.loads.length + card.loads_left_out - 1;
    return [
      first ? h('span', { class: 'error' }, first.text + '. ') : null,
      load ? load.load + ': ' + load.answer + (more > 0 ? '; ' + more + ' more' : '') : null,
    ];
  }

  function linesOf(card, title) {
    const list = card.lists.find((one) => one.title.toLowerCase() === title);
    if (!list) return null;
    const worst = ['bad', 'warning', 'good'].find((state) => list.lines.some((line) => line.state === state));
    const kind = { bad: 'error', warning: 'warning', good: 'good' }[worst] || null;
    return { text: list.lines[0].text, count: list.lines.length + (list.more || 0), kind };
  }

  const CARDS_SHOWN = 20;
  const CARD_RETRY_MS = 30000;

  function runRows(items, none) {
    const answers = new Map();
    const cell = (run, kind) => {
      const box = h('span', {});
      answers.set(run.run_id + kind, box);
      return box;
    };
    const link = (run, text) => h('a', { href: '#/runs/' + run.run_id }, text);
    const table = rows(
      'Runs',
      [
        ['run', (run) => link(run, run.run_id + ' ' + run.run)],
        ['state', stateChip],
        ['answer', (run) => cell(run, 'answer'), 'wrap'],
        ['to the run before', (run) => cell(run, 'before'), 'wrap'],
        ['validity', (run) => cell(run, 'validity')],
        ['targets', (run) => run.targets.join(' ')],
        [
          'tags',
          (run) =>
            Object.entries(run.tags)
              .map(([key, value]) => (value ? key + '=' + value : key))
              .join(' '),
        ],
        ['steps', (run) => (run.steps ? run.steps_done + '/' + run.steps : '-'), 'number'],
        ['warnings', (run) => (run.warnings ? h('span', { class: 'warning' }, String(run.warnings)) : ''), 'number'],
        ['started, UTC', (run) => (run.started_us ? clock(run.started_us, true) : '-')],
        [
          'took',
          (run) => (run.started_us && run.ended_us ? span((run.ended_us - run.started_us) / 1e6) : '-'),
          'number',
        ],
      ],
      items,
      none,
    );
    const ended = items.filter((run) => !['queued', 'running'].includes(run.state));
    for (const run of ended.filter((one) => one.steps_flagged))
      answers
        .get(run.run_id + 'validity')
        .replaceChildren(
          h('span', { class: 'warning' }, run.steps_flagged + (run.steps_flagged === 1 ? ' step' : ' steps')),
        );
    for (const run of ended.slice(0, CARDS_SHOWN)) {
      fetchCard(
        run,
        () => table.isConnected,
        (card) => {
          answers.get(run.run_id + 'answer').replaceChildren(...headline(card).filter(Boolean));
          const before = linesOf(card, 'changes');
          if (before)
            answers
              .get(run.run_id + 'before')
              .replaceChildren(
                h('span', { class: before.kind }, before.text),
                before.count > 1 ? '; ' + (before.count - 1) + ' more' : '',
              );
        },
      );
    }
    return table;
  }

  // A column for each sampled figure of a database table that the page shows.
  function figureColumns(table) {
    const cell = (value, unit) => {
      if (value === null) return '-';
      if (unit === 'bytes') return bytes(Math.round(value));
      return Number.isInteger(value) ? String(value) : figure(value);
    };
    return BenchmeshFigures[table].map(({ key, title, unit }) => [title, (item) => cell(item[key], unit), 'number']);
  }

  function daemonRows(items, most) {
    const busiest = Math.max(100, ...items.map((daemon) => daemon.cpu_percent || 0));
    return rows(
      'Daemons',
      [
        ['host', (daemon) => daemon.host],
        ['daemon', (daemon) => daemon.name + (daemon.instance ? ' ' + daemon.instance : '')],
        ['CPU, %', (daemon) => figure(daemon.cpu_percent), 'number'],
        ['share', (daemon) => bar((daemon.cpu_percent || 0) / busiest), 'bar-cell'],
        ...figureColumns('daemon_samples'),
        ['pid', (daemon) => String(daemon.pid), 'number'],
      ],
      items,
      noneOf('daemons', 'No daemon is sampled now: agents sample while a run is under way.'),
      most,
    );
  }

  // --- Live ---------------------------------------------------------------------------------------------------------

  // The displayed load, second by second. `points`: by the step and the number of its second. `bands`: by step.
  // `opened_us`: when the stream was opened; earlier seconds come from the database. `filler`: the reading under way.
  const live = {
    run: null,
    points: new Map(),
    bands: new Map(),
    origin: 0,
    opened_us: 0,
    source: null,
    ended: '',
    filler: null,
    // Up to here stored points may cover several seconds each.
    wide_until_us: 0,
    unit: 'MiB/s',
    minutes: 5,
  };
  const KEPT_POINTS = 7200;
  const ROWS_SHOWN = 40;
  const MESH_ROWS_SHOWN = 200;
  // A host whose CPUs are busier limits the load; one near it may.
  const HOT_PERCENT = 95;
  const WARM_PERCENT = 80;
  const FILL_EVERY_MS = 2000;
  const MAX_FILLS = 30;
  // The collector's limit for one time line.
  const FILL_POINTS = 5000;
  const KEPT_US = 7200e6;

  function nowUs() {
    return state.health ? state.health.now_us : Date.now() * 1000;
  }

  function forget(run) {
    Object.assign(live, { run, points: new Map(), bands: new Map(), origin: nowUs(), filler: null, wide_until_us: 0 });
  }

  function pointKey(stepId, startUs, atUs) {
    return stepId + ':' + Math.round((atUs - startUs) / 1e6);
  }

  // Reads the stored seconds. While a step runs, they are stored some seconds after they were shown, so they are read
  // again until they reach the opening of the stream.
  async function fill(run) {
    if (live.filler) {
      live.filler.again = true;
      return;
    }
    const own = (live.filler = { again: true });
    for (let left = MAX_FILLS; own.again && left > 0 && live.filler === own; left -= 1) {
      own.again = false;
      const until = await backfill(run);
      const isBehind = until === null || (until < live.opened_us - 1e6 && state.run && state.run.step);
      if (isBehind) own.again = true;
      if (own.again) await new Promise((done) => setTimeout(done, FILL_EVERY_MS));
    }
    if (live.filler === own) live.filler = null;
  }

  // Puts the stored seconds in the place of those shown as they came. Returns the instant up to which they reach, or
  // null if they cannot be read now.
  async function backfill(run) {
    try {
      const since = Math.max(0, nowUs() - KEPT_US);
      const path = '/api/v1/runs/' + run.run_id + '/timeline?points=' + FILL_POINTS + '&from_us=' + since;
      const timeline = await get(path);
      if (live.run !== run.run_id) return null;
      const { total, steps, bucket_s: width } = timeline;
      const at = (second) => timeline.from_us + second * 1e6;
      for (const step of steps)
        live.bands.set(step.step_id, {
          from_us: at(step.from_s),
          until_us: at(step.until_s),
          name: step.ordinal,
          title: step.title,
        });
      let place = -1;
      total.at_s.forEach((second, index) => {
        while (place + 1 < steps.length && steps[place + 1].from_s <= second + 0.002) place += 1;
        const step = steps[Math.max(0, place)];
        const key = (after) => pointKey(step.step_id, at(step.from_s), at(second + after));
        const shown = live.points.get(key(0));
        // A stored point may cover several seconds.
        for (let after = 1; after < width; after += 1) live.points.delete(key(after));
        live.points.set(key(0), {
          at_us: at(second),
          step: step.step_id,
          width,
          stored: true,
          ops: total.ops_per_s[index],
          mib: total.mib_per_s[index],
          p50: total.p50_ms[index],
          p99: total.p99_ms[index],
          max: total.max_ms[index],
          // Stored seconds of all operations together have no response time.
          response: shown && width === 1 ? shown.response : null,
        });
      });
      if (width > 1 && total.at_s.length) live.wide_until_us = at(total.at_s[total.at_s.length - 1] + width);
      if (view && view.changed) view.changed('load');
      return total.at_s.length ? at(total.at_s[total.at_s.length - 1] + width) : 0;
    } catch (error) {
      // The call is repeated; until then the chart begins with the live points.
      return null;
    }
  }

  // Takes the seconds that came with the run's state. Each comes with several updates, perhaps corrected.
  function record() {
    const { run } = state;
    if (!run) return;
    if (live.run !== run.run_id) {
      forget(run.run_id);
      live.source = null;
    }
    const { step } = run;
    if (step && step.start_us !== null && step.state === 'running') {
      const band = live.bands.get(step.step_id);
      const title = band ? band.title : stepName(step);
      const until_us = Math.max(nowUs(), step.start_us);
      live.bands.set(step.step_id, { from_us: step.start_us, until_us, name: step.ordinal, title });
      for (const second of step.seconds) {
        const key = pointKey(step.step_id, step.start_us, second.at_us);
        const shown = live.points.get(key);
        if (shown && shown.width > 1) continue;
        // A stored point of several seconds has it.
        if (second.at_us < live.wide_until_us) continue;
        // Nobody watched when the latencies of this second came; the stored ones stay.
        const latency = (own, name) => own ?? (shown ? shown[name] : null);
        live.points.set(key, {
          at_us: second.at_us,
          step: step.step_id,
          width: second.span_us / 1e6,
          stored: false,
          ops: second.ops_per_s,
          // A load that moves no bytes has no bytes per second.
          mib: step.bytes > 0 ? second.bytes_per_s / MIB : null,
          p50: latency(second.p50_ms, 'p50'),
          p99: latency(second.p99_ms, 'p99'),
          max: latency(second.max_ms, 'max'),
          response: latency(second.response_p99_ms, 'response'),
        });
      }
    }
    // The end of a step stores all of its seconds, and corrects them.
    const last = run.finished[run.finished.length - 1];
    const ended = run.run_id + ' ' + run.state + ' ' + (last ? last.step_id : '');
    if (live.source !== stream.source || live.ended !== ended) {
      if (live.source !== stream.source) live.opened_us = nowUs();
      live.source = stream.source;
      live.ended = ended;
      fill(run);
    }
  }

  // The points in the order of time, as the columns of a chart.
  function liveLines() {
    const points = [...live.points].sort(([, a], [, b]) => a.at_us - b.at_us);
    for (const [key] of points.splice(0, points.length - KEPT_POINTS)) live.points.delete(key);
    const all = points.map(([, point]) => point);
    const lines = { x: all.map((point) => (point.at_us - live.origin) / 1e6), starts: new Set() };
    for (const key of ['width', 'ops', 'mib', 'p50', 'p99', 'max', 'response'])
      lines[key] = all.map((point) => point[key]);
    all.forEach((point, at) => {
      if (at && point.step !== all[at - 1].step) lines.starts.add(at);
    });
    return lines;
  }

  function liveView() {
    document.title = 'benchmesh: live';
    const group = Charts.group();
    const run = h('div', {}),
      banner = h('div', {}),
      finished = h('div', {}),
      clients = h('div', {}),
      daemons = h('div', {}),
      events = h('div', {}),
      hosts = h('div', {}),
      answer = h('div', {});
    const loadBox = h('div', {}),
      latencyBox = h('div', {});
    const charts = {};
    const axis = ({ x }) => {
      // Before any run only the clock determines the axis.
      if (!live.origin && state.health) live.origin = state.health.now_us;
      const now = state.health ? (state.health.now_us - live.origin) / 1e6 : 0;
      const end = state.run && state.run.step ? now : x.length ? x[x.length - 1] + 1 : now;
      const begin = x.length ? x[0] : end - 10;
      const from = live.minutes ? Math.max(begin, end - live.minutes * 60) : begin;
      const seconds = (us) => (us - live.origin) / 1e6;
      const bands = [...live.bands.values()].sort((a, b) => a.from_us - b.from_us);
      return {
        x: 'time',
        originUs: live.origin,
        clockTicks: true,
        group,
        extent: [Math.min(from, end - 10), end],
        xLabel: 'time, UTC',
        bands: bands.map((band) =>
          Object.assign({}, band, { from: seconds(band.from_us), until: seconds(band.until_us) }),
        ),
        marks: marks(),
        bucket: 1,
      };
    };
    const marks = () =>
      (state.run && state.run.run_id === live.run ? state.run.marks : []).map((mark) => ({
        at: (mark.at_us - live.origin) / 1e6,
        severity: mark.source === 'mark' ? 'said' : mark.source === 'daemon-restarted' ? 'warning' : 'info',
        name: mark.source === 'mark' ? mark.text : null,
        text: mark.source === 'mark' ? mark.text : mark.source + ': ' + mark.text,
      }));
    const draw = () => {
      const lines = liveLines();
      const { x, width, starts } = lines;
      const line = (name, y, look) => Object.assign({ name, x, y, width, starts }, look);
      // A run that moves no bytes shows its operations, whatever unit is chosen.
      const isBytes = live.unit === 'MiB/s' && (lines.mib.some((mib) => mib > 0) || !x.length);
      const unit = isBytes ? 'MiB/s' : 'ops/s';
      const load = Object.assign(axis(lines), {
        label: 'Throughput of the run',
        unit,
        series: [line(unit, isBytes ? lines.mib : lines.ops, {})],
        height: 210,
      });
      const latency = Object.assign(axis(lines), {
        label: 'Latency of the run',
        unit: 'ms',
        log: true,
        height: 210,
        series: [
          line('p50', lines.p50, { colour: 0, dash: 1 }),
          line('p99', lines.p99, { colour: 0 }),
          line('max', lines.max, { thin: true, colour: 5 }),
          ...(lines.response.some((value) => value !== null)
            ? [line('response p99', lines.response, { colour: 1 })]
            : []),
        ],
      });
      timed.hidden = !x.length;
      if (charts.load) {
        charts.load.update(load);
        charts.latency.update(latency);
      } else {
        charts.load = new Charts.Line(loadBox, load);
        charts.latency = new Charts.Line(latencyBox, latency);
      }
    };
    // A finished run is told by its card.
    const showCard = (shown) => {
      const key = shown ? cardKey(shown) : '';
      if (answer.dataset.run === key) return;
      answer.dataset.run = key;
      answer.replaceChildren();
      answer.hidden = true;
      if (!shown) return;
      fetchCard(
        shown,
        () => answer.dataset.run === key,
        (card) => {
          answer.hidden = false;
          answer.replaceChildren(
            h(
              'section',
              { class: 'panel' },
              BenchmeshReport.card(card, false),
              h('p', {}, h('a', { href: '#/runs/' + shown.run_id }, 'Report of run ' + shown.run_id)),
            ),
          );
        },
        () => {
          delete answer.dataset.run;
          setTimeout(() => answer.isConnected && drawRun(), CARD_RETRY_MS);
        },
      );
    };
    const drawRun = () => {
      const { run: now } = state;
      const isEnded = now && !['running', 'queued'].includes(now.state);
      const shown = now ? (isEnded ? now : null) : state.runs.find((one) => !['running', 'queued'].includes(one.state));
      showCard(shown);
      if (!now && !stream.received.has('runs')) {
        run.replaceChildren(h('p', { class: 'empty', role: 'status' }, 'Loading.'));
        return;
      }
      if (!now) {
        run.replaceChildren(
          ...(shown
            ? [
                h(
                  'div',
                  { class: 'run-head' },
                  h('h1', {}, 'No run is under way'),
                  h(
                    'span',
                    {},
                    'The last one: ',
                    h('a', { href: '#/runs/' + shown.run_id }, shown.run_id + ' ' + shown.run),
                  ),
                  stateChip(shown),
                ),
              ]
            : [h('h1', {}, 'No run is under way'), h('p', { class: 'mono' }, 'benchmesh run PLAN')]),
        );
        return;
      }
      const { step } = now;
      const ended = !['running', 'queued'].includes(now.state);
      const share = ended ? 1 : now.share_done;
      const silent = step && step.state === 'running' && step.silent_us > 5e6;
      const known = step && step.state === 'running' && !silent && (step.ops > 0 || step.bytes > 0);
      const figures = [
        ['operations/s', known ? figure(step.ops_per_s) : '-', ''],
        ['throughput', known && step.bytes_per_s ? figure(step.bytes_per_s / MIB) : '-', 'MiB/s'],
        ['p50', known ? figure(step.p50_ms) : '-', 'ms'],
        ['p99', known ? figure(step.p99_ms) : '-', 'ms'],
        ['max', known ? figure(step.max_ms) : '-', 'ms'],
        ...(known && step.response_p99_ms ? [['response p99', figure(step.response_p99_ms), 'ms']] : []),
        [
          'step',
          step ? span(step.elapsed_us / 1e6) : '-',
          step && step.share_done !== null ? figure(step.share_done * 100) + ' %' : '',
        ],
      ];
      run.replaceChildren(
        h(
          'div',
          { class: 'run-head' },
          h('h1', {}, h('a', { href: '#/runs/' + now.run_id }, 'Run ' + now.run_id), ' ' + now.run),
          stateChip(now),
          h(
            'span',
            { class: 'soft' },
            (now.loop ? now.loop + ', ' : '') +
              now.steps_done +
              ' of ' +
              now.steps_total +
              ' steps, ' +
              span(now.elapsed_us / 1e6) +
              (ended
                ? ''
                : now.left_us === null
                  ? ', time left unknown'
                  : (now.left_is_low ? ', more than ' : ', about ') + span(now.left_us / 1e6) + ' left'),
          ),
        ),
        h('progress', { max: '1', value: String(Math.min(1, share)), 'aria-label': 'Progress of the run' }),
        h(
          'p',
          { class: 'step-line' },
          step
            ? [
                h('strong', {}, 'Step ' + step.ordinal + ' '),
                stepName(step) + ' ',
                h(
                  'span',
                  { class: 'soft' },
                  STATES[step.state] || step.state,
                  ', ' + step.clients + (step.clients === 1 ? ' agent' : ' agents'),
                  step.clients_absent
                    ? h('span', { class: 'error' }, ', ' + step.clients_absent + ' of them without contact')
                    : '',
                ),
              ]
            : now.removed_files !== null
              ? 'Removing data: ' + figure(now.removed_files) + ' files so far'
              : ended
                ? 'The run has ended.'
                : 'Between two steps.',
        ),
        ...now.objectives.map((it) =>
          h(
            'p',
            { class: it.broken ? 'error' : 'soft' },
            'Objective ' +
              (!it.seconds
                ? 'not judged'
                : it.broken
                  ? 'broken'
                  : it.bad_seconds > 0 && it.bad_seconds > 0.8 * it.budget_s
                    ? 'at risk'
                    : 'kept') +
              ': ' +
              it.holds +
              ': ' +
              (it.seconds
                ? figure(it.bad_seconds) +
                  ' of ' +
                  figure(it.seconds) +
                  ' seconds were bad, ' +
                  figure(it.budget_s) +
                  ' may be.'
                : 'no second was judged.'),
          ),
        ),
        silent ? h('p', { class: 'warning' }, 'No figures for ' + span(step.silent_us / 1e6) + '.') : '',
        ended || !step
          ? ''
          : h(
              'dl',
              { class: 'figures' },
              figures.map(([name, value, unit]) =>
                h(
                  'div',
                  {},
                  h('dt', {}, name),
                  h('dd', {}, value, unit && value !== '-' ? h('small', {}, unit) : null),
                ),
              ),
            ),
        known
          ? h(
              'p',
              { class: 'note' },
              'Rates and latencies of the last ' + step.window_s + ' s; the charts show each second.',
            )
          : '',
      );
    };
    const drawFinished = () => {
      const steps = state.run ? [...state.run.finished].reverse() : [];
      const lines = steps.flatMap((step) =>
        step.ops.length ? step.ops.map((op, at) => ({ step, op, first: at === 0 })) : [{ step, op: null, first: true }],
      );
      finished.replaceChildren(
        rows(
          'Finished steps',
          [
            ['step', (line) => (line.first ? String(line.step.ordinal) : ''), 'number'],
            ['what', (line) => (line.first ? stepName(line.step) : '')],
            [
              'op',
              (line) => (line.op ? [line.op.group, line.op.op].filter(Boolean).join(' ') : 'no operation completed'),
            ],
            ['ops/s', (line) => (line.op ? figure(line.op.ops_per_s) : '-'), 'number'],
            ['MiB/s', (line) => (line.op && line.op.bytes_per_s ? figure(line.op.bytes_per_s / MIB) : '-'), 'number'],
            ['p50, ms', (line) => (line.op ? figure(line.op.p50_ms) : '-'), 'number'],
            ['p99, ms', (line) => (line.op ? figure(line.op.p99_ms) : '-'), 'number'],
            ['max, ms', (line) => (line.op ? figure(line.op.max_ms) : '-'), 'number'],
            [
              'errors',
              (line) => (line.op && line.op.errors ? h('span', { class: 'error' }, figure(line.op.errors)) : ''),
              'number',
            ],
            [
              'flags',
              (line) =>
                line.first
                  ? [
                      ...(line.step.state === 'done' ? [] : [chip(line.step.state, line.step.state)]),
                      ...line.step.flags.map(flagChip),
                    ].map((one) => [one, ' '])
                  : '',
            ],
          ],
          lines,
          'No step has ended yet.',
        ),
      );
    };
    const drawClients = () => {
      const all = state.run ? state.run.clients : [];
      const most = Math.max(1e-9, ...all.map((client) => client.ops_per_s));
      clients.replaceChildren(
        rows(
          'Clients',
          [
            ['agent', (client) => client.agent + (client.is_absent ? ', no contact' : '')],
            ['ops/s', (client) => figure(client.ops_per_s), 'number'],
            ['MiB/s', (client) => (client.bytes_per_s ? figure(client.bytes_per_s / MIB) : '-'), 'number'],
            ['share', (client) => bar(client.ops_per_s / most), 'bar-cell'],
          ],
          all,
          'Clients are listed while a load runs, the slowest first.',
          ROWS_SHOWN,
        ),
      );
    };
    const drawHosts = () =>
      hosts.replaceChildren(
        rows(
          'Hosts',
          [
            ['host', (host) => host.host],
            ['CPU busy, %', (host) => h('span', { class: heatOf(host) }, figure(host.busy_percent)), 'number'],
            ['share', (host) => bar((host.busy_percent || 0) / 100), 'bar-cell'],
            ['I/O wait, %', (host) => figure(host.iowait_percent), 'number'],
            ...figureColumns('host_samples'),
          ],
          // The busiest first: they may limit the load.
          [...state.hosts].sort((a, b) => (b.busy_percent || 0) - (a.busy_percent || 0)),
          'No host is sampled now.',
          ROWS_SHOWN,
        ),
      );
    const heatOf = (host) =>
      host.busy_percent >= HOT_PERCENT ? 'error' : host.busy_percent >= WARM_PERCENT ? 'warning' : null;
    // What makes the figures doubtful, as it is now: [severity, text].
    const problems = () => {
      const { run: now, health } = state;
      const found = [];
      if (health && health.blocked) found.push(['error', 'The database cannot be written: ' + health.blocked]);
      if (health && health.archive && health.archive.error)
        found.push(['warning', 'Runs cannot be copied into the archive: ' + health.archive.error]);
      if (!now) return found;
      const absent = now.step ? now.step.clients_absent : 0;
      if (absent)
        found.push(['error', absent + ' of the ' + now.step.clients + ' agents of the step without contact.']);
      const hot = now.step ? state.hosts.filter((host) => heatOf(host) === 'error').map((host) => host.host) : [];
      if (hot.length)
        found.push([
          'error',
          'No CPU left on ' +
            hot.slice(0, 5).join(', ') +
            (hot.length > 5 ? ' and ' + (hot.length - 5) + ' more' : '') +
            ': the load may be limited by it.',
        ]);
      if (now.partial) found.push(['warning', 'The run is partial: some of what it should measure is missing.']);
      for (const alarm of now.alarms) found.push(['warning', 'Alarm ' + alarm.when + ': ' + alarm.because]);
      return found;
    };
    const drawBanner = () => {
      const found = problems();
      // Announced once, not with every second.
      const key = JSON.stringify(found);
      if (banner.dataset.shown === key) return;
      banner.dataset.shown = key;
      banner.replaceChildren(
        ...found.map(([severity, text]) => h('p', { class: 'banner ' + severity, role: 'alert' }, text)),
      );
    };
    const units = BenchmeshReport.choice('Unit', ['MiB/s', 'ops/s'], live.unit, (unit) => {
      live.unit = unit;
      draw();
    });
    const spans = { '5 min': 5, '30 min': 30, '2 h': 120 };
    const chosen = Object.entries(spans).find(([, minutes]) => minutes === live.minutes)[0];
    const lengths = BenchmeshReport.choice('Time shown', Object.keys(spans), chosen, (name) => {
      live.minutes = spans[name];
      group.domain = null;
      draw();
    });
    const timed = h(
      'div',
      { class: 'columns' },
      panel('Throughput', { kind: 'half', right: [units, ' ', lengths] }, loadBox),
      panel('Latency', { kind: 'half' }, latencyBox),
    );
    // Each with what it lists: an empty one is not shown between runs.
    const panels = [
      [panel('Finished steps', {}, finished), () => (state.run ? state.run.finished : [])],
      [panel('Clients', { kind: 'half' }, clients), () => (state.run ? state.run.clients : [])],
      [panel('Hosts', { kind: 'half' }, hosts), () => state.hosts],
      [panel('Daemons', {}, daemons), () => state.daemons],
      [panel('Events', {}, events), () => state.events],
    ];
    const isUnderWay = () => state.run && ['running', 'queued'].includes(state.run.state);
    const hideEmpty = () => {
      for (const [box, items] of panels) box.hidden = !isUnderWay() && !items().length;
    };
    main.replaceChildren(
      banner,
      h(
        'div',
        { class: 'columns' },
        h('section', { class: 'panel', 'aria-label': 'Run under way' }, run),
        answer,
        timed,
        panels.map(([box]) => box),
      ),
    );
    const drawAll = {
      run: () => {
        record();
        drawBanner();
        drawRun();
        draw();
        drawFinished();
        drawClients();
      },
      load: draw,
      daemons: () => daemons.replaceChildren(daemonRows(state.daemons, ROWS_SHOWN)),
      hosts: () => {
        drawHosts();
        drawBanner();
      },
      events: () => events.replaceChildren(eventRows(state.events.slice(0, 30))),
      health: drawBanner,
      runs: () => {
        if (!state.run) drawRun();
      },
    };
    // Seconds that came while another page was shown are read from the database.
    live.source = null;
    for (const act of Object.values(drawAll)) act();
    hideEmpty();
    return {
      changed: (topic) => {
        if (drawAll[topic]) drawAll[topic]();
        hideEmpty();
      },
    };
  }

  // --- Runs, mesh, events, query ------------------------------------------------------------------------------------

  function runsView() {
    document.title = 'benchmesh: runs';
    const box = h('div', {});
    const filter = h('input', {
      type: 'search',
      'aria-label': 'Filter runs',
      placeholder: 'Filter by name, state, target or tag',
      oninput: () => draw(),
    });
    let all = null;
    const draw = () => {
      const wanted = filter.value.toLowerCase();
      box.replaceChildren(
        runRows(
          (all || state.runs).filter((run) =>
            [
              run.run_id,
              run.run,
              run.state,
              run.uid,
              ...run.targets,
              ...Object.entries(run.tags).map((tag) => tag.join('=')),
            ]
              .join(' ')
              .toLowerCase()
              .includes(wanted),
          ),
          !all && !stream.received.has('runs')
            ? 'Loading.'
            : wanted
              ? 'No run matches the filter.'
              : 'No run yet. Start one: benchmesh run PLAN',
        ),
      );
      for (const region of box.querySelectorAll('.tall')) region.classList.remove('tall');
    };
    main.replaceChildren(h('h1', { class: 'hidden' }, 'Runs'), panel('Runs', { right: filter }, box));
    draw();
    const load = () =>
      get('/api/v1/runs?limit=500')
        .then((answer) => {
          all = answer.runs;
          draw();
        })
        .catch((error) => box.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message)));
    load();
    return {
      changed: (topic) => {
        if (topic === 'runs') load();
      },
    };
  }

  function runView(id) {
    document.title = 'benchmesh: run ' + id;
    const root = h('div', {});
    const path = '/api/v1/runs/' + encodeURIComponent(id);
    main.replaceChildren(
      h(
        'p',
        { class: 'no-print' },
        h('a', { href: '#/runs' }, 'Runs'),
        '  /  run ' + id + '  ',
        h('a', { href: path + '/report.html', download: true }, 'Save as a file'),
        '  ',
        h('button', { type: 'button', class: 'quiet', onclick: () => load() }, 'Read again'),
      ),
      root,
    );
    let current = true;
    const load = async () => {
      if (!root.hasChildNodes()) root.append(h('p', { class: 'empty', role: 'status' }, 'Reading the report.'));
      try {
        const [answer, run] = await Promise.all([get(path + '/pictures'), get(path)]);
        if (!current) return;
        BenchmeshReport.show(root, answer);
        root.append(panel('Plan', {}, h('pre', { tabindex: '0' }, run.plan)));
      } catch (error) {
        if (current) root.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message));
      }
    };
    load();
    return {
      end: () => {
        current = false;
      },
    };
  }

  // The possible comparisons: the name of the choice, and its fields with their parameters. An optional field may be
  // empty; one of several values takes them with commas between.
  const COMPARISONS = {
    'two runs': [
      { name: 'A', as: 'a' },
      { name: 'B', as: 'b' },
    ],
    'targets of a run': [{ name: 'run', as: 'targets' }],
    'values of a key in a run': [
      { name: 'run', as: 'run' },
      { name: 'key', as: 'by' },
      { name: 'where', as: 'where', optional: true, several: true },
      { name: 'figure', as: 'figure', optional: true, several: true },
    ],
    'newest of a plan against those before': [
      { name: 'plan', as: 'plan' },
      { name: 'runs before', as: 'last' },
    ],
    'a run against a baseline': [
      { name: 'baseline', as: 'baseline' },
      { name: 'run', as: 'run' },
    ],
    'trend of a plan': [{ name: 'plan', as: 'trend' }],
  };

  function comparisonAsked(kind, values) {
    const parts = COMPARISONS[kind].flatMap(({ as, optional, several }, at) => {
      const given = several ? values[at].split(',').map((one) => one.trim()) : [values[at]];
      return given.filter((one) => one || !optional).map((one) => as + '=' + encodeURIComponent(one));
    });
    return parts.join('&');
  }

  function chosenComparison(asked) {
    const wanted = new URLSearchParams(asked);
    if (!asked) return ['targets of a run', []];
    const own = { targets: 1, by: 2, plan: 3, baseline: 4, trend: 5 };
    const kind = Object.keys(COMPARISONS)[own[Object.keys(own).find((name) => wanted.has(name))] || 0];
    const values = COMPARISONS[kind].map(({ as, several }) =>
      several ? wanted.getAll(as).join(', ') : wanted.get(as),
    );
    if (wanted.has('by') && !wanted.has('run')) values[0] = 'last';
    return [kind, values];
  }

  function compareView(asked) {
    document.title = 'benchmesh: compare';
    const [kind, values] = chosenComparison(asked);
    const root = h('div', {}),
      fields = h('span', { class: 'compare-form' });
    const kinds = h(
      'select',
      {
        'aria-label': 'What to compare',
        onchange: () => {
          touched = true;
          drawFields([]);
        },
      },
      Object.keys(COMPARISONS).map((name) => h('option', {}, name)),
    );
    kinds.value = kind;
    let runs = state.runs,
      baselines = [],
      touched = false;
    const option = (value, text = null) => h('option', { value }, text);
    const choices = (name) => {
      const ended = runs.filter(
        (run) =>
          !['queued', 'running'].includes(run.state) && (kinds.value !== 'targets of a run' || run.targets.length > 1),
      );
      if (name === 'plan') return [...new Set(ended.map((run) => run.run))].map((plan) => option(plan, plan));
      if (name === 'baseline')
        return baselines.map((one) => option(one.baseline, one.baseline + ': run ' + one.run_id + ' ' + one.run));
      return ended.map((run) =>
        option(run.run_id, run.run_id + ' ' + run.run + (run.started_us ? ', ' + clock(run.started_us, true) : '')),
      );
    };
    const field = (name, wanted) => {
      if (name === 'runs before')
        return h('input', { type: 'number', min: '1', max: '100', required: true, value: wanted || '5' });
      if (name === 'key') return h('input', { required: true, value: wanted || 'mode', list: keys.id });
      if (name === 'where')
        return h('input', { class: 'wide', value: wanted || '', placeholder: 'mode=randread', list: wheres.id });
      if (name === 'figure')
        return h('input', { class: 'wide', value: wanted || '', placeholder: 'p95,spread', list: figures.id });
      const select = h('select', { required: true }, choices(name));
      if (wanted && ![...select.options].some((one) => one.value === wanted)) select.append(option(wanted, wanted));
      if (wanted) select.value = wanted;
      else if (name === 'A' && select.options.length > 1) select.selectedIndex = 1;
      return select;
    };
    const chosenNow = () => [...fields.querySelectorAll('select, input')].map((one) => one.value);
    const hint = h('p', { class: 'note' });
    const keys = h('datalist', { id: 'compare-keys' }),
      wheres = h('datalist', { id: 'compare-where' }),
      figures = h(
        'datalist',
        { id: 'compare-figures' },
        BenchmeshCompared.figures.map(([name, title]) => option(name, title)),
      );
    // The keys of the chosen run's steps, and their values.
    const offerKeys = async (run) => {
      const values = new Map(BenchmeshCompared.keys.map((key) => [key, new Set()]));
      const add = (key, value) => {
        if (value === null || value === undefined || value === '' || typeof value === 'object') return;
        if (!values.has(key)) values.set(key, new Set());
        values.get(key).add(String(value));
      };
      try {
        const { steps } = await get('/api/v1/runs/' + encodeURIComponent(run));
        for (const step of steps) {
          for (const key of BenchmeshCompared.keys) add(key, step[key]);
          for (const [key, value] of Object.entries(step.params || {})) add(key, value);
        }
      } catch {
        // Without the run, its keys can be typed.
      }
      keys.replaceChildren(...[...values.keys()].map((key) => option(key)));
      wheres.replaceChildren(
        ...[...values].flatMap(([key, found]) => [...found].map((value) => option(key + '=' + value))),
      );
    };
    const drawFields = (chosen) => {
      const wanted = COMPARISONS[kinds.value].map(({ name }) => name);
      fields.replaceChildren(...wanted.map((name, at) => h('label', {}, name, field(name, chosen[at]))));
      const needsBaseline = wanted.includes('baseline') && !baselines.length;
      hint.replaceChildren(
        needsBaseline
          ? 'No baseline is saved yet: benchmesh compare --save NAME RUN'
          : wanted.includes('where')
            ? 'where and figure may be empty, or have several values with commas between. Figures: ' +
              BenchmeshCompared.figures.map(([name]) => name).join(', ') +
              '.'
            : '',
      );
      const run = wanted.includes('where') ? fields.querySelector('select') : null;
      if (run) {
        run.addEventListener('change', () => offerKeys(run.value));
        if (run.value) offerKeys(run.value);
      }
    };
    const form = h(
      'form',
      {
        class: 'compare-form',
        onsubmit: (event) => {
          event.preventDefault();
          location.hash = '#/compare/' + encodeURIComponent(comparisonAsked(kinds.value, chosenNow()));
        },
      },
      h('label', {}, 'what', kinds),
      fields,
      h('button', { type: 'submit', class: 'primary' }, 'Compare'),
    );
    const save = asked ? h('a', { href: '/api/v1/compare.html?' + asked, download: true }, 'Save as a file') : null;
    main.replaceChildren(
      asked ? '' : h('h1', { class: 'hidden' }, 'Compare'),
      panel('Compare runs and targets', { kind: 'no-print', right: save }, form, hint, keys, wheres, figures),
      root,
    );
    drawFields(values);
    let current = true;
    Promise.all([get('/api/v1/runs?limit=500'), get('/api/v1/baselines')])
      .then(([listed, saved]) => {
        if (!current) return;
        runs = listed.runs;
        baselines = saved.baselines;
        // Without a question: the targets of the newest run that has several.
        const newest = runs.find((run) => run.targets.length > 1 && !['queued', 'running'].includes(run.state));
        if (asked || touched) drawFields(chosenNow());
        else if (newest) {
          drawFields([String(newest.run_id)]);
          load('targets=' + newest.run_id);
        } else {
          kinds.value = 'two runs';
          drawFields([]);
        }
      })
      .catch(() => {});
    const load = async (asked) => {
      root.replaceChildren(h('p', { class: 'empty', role: 'status' }, 'Comparing.'));
      try {
        const answer = await get('/api/v1/compare/pictures?' + asked);
        if (current) BenchmeshCompare.show(root, answer);
      } catch (error) {
        if (current) root.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message));
      }
    };
    if (asked) load(asked);
    return {
      end: () => {
        current = false;
      },
    };
  }

  // The limits of an agent's load, by the keys of its policy; unlimited ones are left out.
  function policyWords(policy) {
    if (!policy) return '';
    const words = BenchmeshLimits.filter(({ key }) => policy[key]).map(
      ({ key, option, unit }) => option + '=' + (unit === 'bytes' ? bytes(policy[key]) : policy[key]),
    );
    if (policy.workloads.length) words.push('workloads=' + policy.workloads.join(','));
    if (policy.devices.length) words.push('allow-device=' + policy.devices.join(','));
    if (policy.networks.length) words.push('allow-network=' + policy.networks.join(','));
    if (policy.drop_caches) words.push('allow-drop-caches');
    return words.join(' ');
  }

  function meshView() {
    document.title = 'benchmesh: mesh';
    const agents = h('div', {}),
      daemons = h('div', {}),
      links = h('div', {}),
      kept = h('div', {});
    const drawKept = async () => {
      try {
        const answer = await select(
          'SELECT keep_seconds_us, keep_10s_us, max_size_bytes, keep_tags, pruned_us, pruned_rows FROM meta',
          1,
        );
        if (answer.error) throw new Error(answer.error);
        const [seconds, tens, size, tags, at, gone] = answer.rows[0];
        const time = (us) => (us === null ? 'forever' : span(us / 1e6));
        kept.replaceChildren(
          h(
            'p',
            {},
            'Rows of seconds are kept ' +
              time(seconds) +
              ', rows of 10 s ' +
              time(tens) +
              ' after their run; ' +
              (size === null ? 'the size has no limit' : 'at most ' + bytes(size) + ' in all') +
              JSON.parse(tags || '[]')
                .map((tag) => '; all rows of runs with ' + tag)
                .join('') +
              '.',
          ),
          h(
            'p',
            { class: 'soft' },
            at === null
              ? 'No row was merged or deleted yet.'
              : 'Rows were last merged or deleted at ' + clock(at, true) + ' UTC: ' + figure(gone) + '.',
          ),
        );
      } catch (error) {
        kept.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message));
      }
    };
    const drawAgents = () => {
      agents.replaceChildren(
        rows(
          'Agents',
          [
            ['agent', (agent) => agent.name],
            [
              'state',
              (agent) => [
                h('span', { class: 'dot-state ' + (agent.attached ? 'on' : 'off') }),
                agent.attached ? 'attached' : 'away',
              ],
            ],
            ['host', (agent) => agent.host],
            [
              'labels',
              (agent) =>
                Object.entries(agent.labels)
                  .map(([key, value]) => key + '=' + value)
                  .join(' '),
            ],
            ['CPUs', (agent) => (agent.cpus ? String(agent.cpus) : '-'), 'number'],
            ['memory', (agent) => bytes(agent.memory_bytes), 'number'],
            [
              'clock',
              (agent) => (agent.clock_error_us === null ? '-' : '+/- ' + figure(agent.clock_error_us) + ' us'),
              'number',
            ],
            [
              'round trip',
              (agent) => (agent.round_trip_us === null ? '-' : figure(agent.round_trip_us) + ' us'),
              'number',
            ],
            ['allows', (agent) => agent.allowed_paths.join(' ')],
            ['policy', (agent) => policyWords(agent.policy), 'wrap'],
            ['last seen', (agent) => (agent.attached ? 'now' : clock(agent.last_seen_us, true))],
            ['version', (agent) => agent.version],
            ['address', (agent) => agent.address],
          ],
          // Those that are away first.
          [...state.agents].sort((a, b) => a.attached - b.attached),
          noneOf('agents', 'No agent has attached yet: benchmesh agent --collector HOST:PORT --allow PATH'),
          MESH_ROWS_SHOWN,
        ),
      );
    };
    const drawDaemons = () => daemons.replaceChildren(daemonRows(state.daemons, MESH_ROWS_SHOWN));
    const drawLinks = async () => {
      const sql =
        "SELECT from_agent, to_agent, mib_per_s, rtt_p50_us FROM v_links WHERE run_id = (SELECT max(s.run_id) FROM steps AS s WHERE s.workload = 'network' AND s.state = 'done')";
      try {
        const answer = await select(sql, 10000);
        if (answer.error) throw new Error(answer.error);
        const names = [...new Set(answer.rows.flatMap((row) => [row[0], row[1]]))].sort();
        const grid = (column) =>
          names.map((from) =>
            names.map((to) => {
              const known = answer.rows
                .filter((row) => row[0] === from && row[1] === to && row[column] !== null)
                .map((row) => row[column]);
              return known.length ? (column === 2 ? Math.max(...known) : Math.min(...known)) : null;
            }),
          );
        links.replaceChildren(
          ...(names.length
            ? [
                [2, 'MiB/s'],
                [3, 'round trip p50, us'],
              ]
                .map(([column, title]) => [title, grid(column)])
                .filter(([, values]) => values.flat().some((value) => value !== null))
                .flatMap(([title, values]) => [
                  h('h3', {}, title),
                  Charts.matrix({
                    label: 'Links, ' + title,
                    rowKey: 'from',
                    rows: names,
                    columnKey: 'to',
                    columns: names,
                    values,
                  }),
                ])
            : [h('p', { class: 'empty' }, 'No link has been measured yet: the workload `network` measures links.')]),
        );
      } catch (error) {
        links.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message));
      }
    };
    main.replaceChildren(
      h('h1', { class: 'hidden' }, 'Mesh'),
      h(
        'div',
        { class: 'columns' },
        panel('Agents', {}, agents),
        panel('Daemons', {}, daemons),
        panel('Links', { right: h('span', { class: 'faint' }, 'best of the newest run that measured them') }, links),
        panel('What the database keeps', {}, kept),
      ),
    );
    drawKept();
    drawAgents();
    drawDaemons();
    drawLinks();
    return {
      changed: (topic) => {
        if (topic === 'agents') drawAgents();
        if (topic === 'daemons') drawDaemons();
      },
    };
  }

  function eventsView() {
    document.title = 'benchmesh: events';
    const box = h('div', {});
    const severity = h(
      'select',
      { 'aria-label': 'Severity', onchange: () => draw() },
      ['all', 'warning and error', 'error'].map((name) => h('option', {}, name)),
    );
    let all = [];
    const draw = () => {
      const kept = all.filter(
        (event) =>
          severity.value === 'all' ||
          event.severity === 'error' ||
          (severity.value !== 'error' && event.severity === 'warning'),
      );
      box.replaceChildren(eventRows(kept));
      for (const region of box.querySelectorAll('.tall')) region.classList.remove('tall');
    };
    const load = () =>
      get('/api/v1/events?limit=500')
        .then((answer) => {
          all = answer.events;
          draw();
        })
        .catch((error) => box.replaceChildren(h('p', { class: 'banner error', role: 'alert' }, error.message)));
    main.replaceChildren(h('h1', { class: 'hidden' }, 'Events'), panel('Events', { right: severity }, box));
    load();
    return {
      changed: (topic) => {
        if (topic === 'events') load();
      },
    };
  }

  const SHOWN_ROWS = 1000;
  const CSV_ROWS = 100000;
  const asked = {
    sql: 'SELECT run, phase, target, mode, op, ops_per_s, mib_per_s, p50_ms, p99_ms\nFROM v_results ORDER BY step_id DESC LIMIT 100',
  };
  const SCHEMA =
    'SELECT m.type, m.name, json_group_array(p.name) FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS p ' +
    "WHERE m.type IN ('view', 'table') AND m.name NOT LIKE 'sqlite_%' GROUP BY m.name ORDER BY m.type DESC, m.name";

  function select(sql, limit, signal) {
    return get('/api/v1/query', {
      method: 'POST',
      signal,
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ sql, limit }),
    });
  }

  function csv(answer) {
    const cell = (value) => {
      const text = value === null ? '' : String(value);
      return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [answer.columns, ...answer.rows].map((row) => row.map(cell).join(',') + '\r\n').join('');
  }

  // Views first: they are what questions are usually about. A click adds the name to the question.
  function schemaPanel(insert) {
    const box = h('div', {});
    const name = (text) => h('button', { type: 'button', class: 'quiet', onclick: () => insert(text) }, text);
    select(SCHEMA, 1000)
      .then((answer) =>
        box.replaceChildren(
          ...answer.rows.map(([kind, table, columns]) =>
            h(
              'details',
              {},
              h('summary', {}, table, kind === 'view' ? h('span', { class: 'faint' }, ' view') : null),
              h('p', { class: 'mono' }, name(table), JSON.parse(columns).map(name)),
            ),
          ),
        ),
      )
      .catch((error) => box.replaceChildren(h('p', { class: 'banner error' }, error.message)));
    return panel('Schema', { kind: 'schema' }, box);
  }

  function queryView() {
    document.title = 'benchmesh: query';
    const sql = h('textarea', {
      rows: '8',
      spellcheck: 'false',
      autocapitalize: 'off',
      'aria-label': 'SQL',
      oninput: () => {
        asked.sql = sql.value;
      },
    });
    sql.value = asked.sql;
    const answerBox = h('div', { class: 'answer', 'aria-live': 'polite' });
    const pick = h(
      'select',
      {
        'aria-label': 'Documented questions',
        onchange: () => {
          if (pick.value) {
            sql.value = asked.sql = pick.value;
            run();
          }
        },
      },
      h('option', { value: '' }, 'Documented questions'),
    );
    const button = h('button', { type: 'submit', class: 'primary' }, 'Run');
    const cancel = h('button', { type: 'button', disabled: true, onclick: () => asking.abort() }, 'Cancel');
    let asking = null;
    // One query at a time. The server ends a query whose reader has gone.
    const during = async (words, act) => {
      if (asking) asking.abort();
      const own = (asking = new AbortController());
      button.disabled = true;
      cancel.disabled = false;
      answerBox.replaceChildren(h('p', { class: 'empty', role: 'status' }, words));
      try {
        await act(own.signal);
      } catch (error) {
        if (asking !== own) return;
        answerBox.replaceChildren(
          error.name === 'AbortError'
            ? h('p', { class: 'empty', role: 'status' }, 'Cancelled.')
            : h('pre', { class: 'banner error', role: 'alert' }, error.message),
        );
      } finally {
        if (asking === own) {
          button.disabled = false;
          cancel.disabled = true;
        }
      }
    };
    const run = () => {
      const began = performance.now();
      const text = sql.value;
      return during('Running the query.', async (signal) => {
        const answer = await select(text, SHOWN_ROWS, signal);
        show(text, answer, span((performance.now() - began) / 1000));
      });
    };
    const show = (text, answer, took) => {
      const numeric = answer.columns.map((_, at) => answer.rows.some((row) => typeof row[at] === 'number'));
      const cell = (value) =>
        value === null
          ? h('span', { class: 'faint' }, 'NULL')
          : typeof value === 'number' && !Number.isInteger(value)
            ? Number(value.toPrecision(6)).toString()
            : String(value);
      answerBox.replaceChildren(
        h(
          'p',
          { class: 'note', role: 'status' },
          answer.rows.length +
            (answer.rows.length === 1 ? ' row' : ' rows') +
            (answer.truncated ? ', and more,' : '') +
            ' in ' +
            took +
            ' ',
          h('button', { type: 'button', class: 'quiet', onclick: () => save(text, answer) }, 'Save as CSV'),
          answer.truncated ? ' (up to ' + figure(CSV_ROWS) + ' rows; `benchmesh query` writes all)' : '',
        ),
        ...(answer.error ? [h('p', { class: 'banner error', role: 'alert' }, answer.error)] : []),
        Charts.table(
          answer.columns.map((title, at) => ({ title, right: numeric[at] })),
          answer.rows.map((row) => row.map(cell)),
          { label: 'Answer' },
        ),
      );
    };
    const save = async (text, shown) => {
      let answer = shown.truncated ? null : shown;
      if (!answer)
        await during('Reading all rows.', async (signal) => {
          answer = await select(text, CSV_ROWS, signal);
          show(text, shown, 'part');
        });
      if (!answer) return;
      const url = URL.createObjectURL(new Blob([csv(answer)], { type: 'text/csv' }));
      h('a', { href: url, download: 'benchmesh.csv' }).click();
      URL.revokeObjectURL(url);
    };
    sql.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run();
    });
    main.replaceChildren(
      h('h1', { class: 'hidden' }, 'Query'),
      h(
        'div',
        { class: 'query' },
        panel(
          'SQL',
          { right: pick },
          h(
            'form',
            {
              onsubmit: (event) => {
                event.preventDefault();
                run();
              },
            },
            sql,
            h(
              'p',
              { class: 'note' },
              button,
              ' ',
              cancel,
              '  Ctrl and Enter runs it. It only reads, within the limits of `benchmesh query`; the first ' +
                figure(SHOWN_ROWS) +
                ' rows are shown.',
            ),
          ),
          answerBox,
        ),
        schemaPanel((text) => {
          sql.setRangeText(text, sql.selectionStart, sql.selectionEnd, 'end');
          asked.sql = sql.value;
          sql.focus();
        }),
      ),
    );
    get('/api/v1/questions')
      .then((answer) =>
        pick.append(...answer.questions.map((question) => h('option', { value: question.sql }, question.title))),
      )
      .catch(() => {});
    return {
      end: () => {
        if (asking) asking.abort();
      },
    };
  }

  // --- Routes -------------------------------------------------------------------------------------------------------

  function route() {
    // `#/compare?a=1&b=2` is the same as `#/compare/a%3D1%26b%3D2`.
    const [place, query] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
    const path = place.split('/').map(decodeURIComponent);
    if (view && view.end) view.end();
    view = null;
    const views = {
      '': liveView,
      runs: path[1] ? () => runView(path[1]) : runsView,
      compare: () => compareView(path[1] || query || ''),
      mesh: meshView,
      events: eventsView,
      query: queryView,
    };
    const chosen = views[path[0]];
    for (const link of document.querySelectorAll('.top nav a')) {
      if (link.getAttribute('href') === '#/' + path[0]) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    if (chosen) view = chosen();
    else main.replaceChildren(h('p', { class: 'empty' }, 'There is no such page.'));
    window.scrollTo(0, 0);
  }

  window.addEventListener('hashchange', () => {
    route();
    main.focus({ preventScroll: true });
  });
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  header();
  route();
  open();
})();
