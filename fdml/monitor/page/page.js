"use strict";
// The live page: it listens to /events and writes what it hears into the page, as text. It asks nobody else.
(() => {
  const at = (id) => document.getElementById(id);
  const charts = new Map();
  let last = null;
  let across = "epoch";

  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  // Text in which what is to be typed stands between backticks.
  const say = (element, text) => {
    if (element.textContent === text.replaceAll("`", "")) return;
    element.replaceChildren(...text.split("`").map((part, place) => (place % 2 ? make("code", part) : part)));
  };
  const show = (element, wanted) => {
    element.hidden = !wanted;
  };
  const bytes = (count) => (count === null ? "-" : count < 1e9 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(2)} GB`);
  const number = (value) => (value === null ? "-" : value.toLocaleString("en"));
  const figure = (value) => (value === null || value === undefined ? "-" : value.toFixed(4));

  const fill = (table, rows) => {
    const body = make("tbody");
    for (const row of rows) body.append(row);
    table.tBodies[0].replaceWith(body);
  };
  const line = (cells, kind) => {
    const row = make("tr", null, kind);
    for (const [text, name] of cells) {
      const cell = make("td", null, name);
      if (text instanceof Node) cell.append(text);
      else cell.textContent = text;
      row.append(cell);
    }
    return row;
  };

  // On a phone every cell says what it is.
  const labelled = (table, row) => {
    const names = [...at(table).tHead.rows[0].cells].map((cell) => cell.textContent);
    [...row.cells].forEach((cell, place) => { cell.dataset.name = names[place]; });
    return row;
  };

  const STATES = { c: "computing", w: "waiting", h: "holding up the others", g: "gone", f: "finished" };
  const SVG = "http://www.w3.org/2000/svg";
  const stripe = (letters) => {
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", "0 0 60 6");
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("class", "stripe");
    drawing.setAttribute("role", "img");
    const seconds = {};
    const first = 60 - letters.length;
    for (let begin = 0; begin < letters.length; ) {
      let end = begin;
      while (end < letters.length && letters[end] === letters[begin]) end += 1;
      const piece = document.createElementNS(SVG, "rect");
      piece.setAttribute("x", first + begin);
      piece.setAttribute("width", end - begin);
      piece.setAttribute("height", 6);
      piece.setAttribute("class", letters[begin]);
      drawing.append(piece);
      seconds[letters[begin]] = (seconds[letters[begin]] || 0) + end - begin;
      begin = end;
    }
    const words = Object.entries(seconds).map(([letter, count]) => `${count} s ${STATES[letter]}`);
    drawing.setAttribute("aria-label", `Last minute: ${words.join(", ") || "nothing known"}`);
    return drawing;
  };

  const PARTS = { computing: "c", waiting: "w", line: "l", rest: "r" };
  const WORDS = { computing: "computing", waiting: "waiting", line: "line", rest: "computing or line" };
  const percent = (share) => `${Math.round(100 * share)} %`;
  const shares = (found) => {
    if (!found) return "-";
    const box = make("div", null, "shares");
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", "0 0 100 6");
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("class", "share");
    drawing.setAttribute("role", "img");
    let at = 0;
    for (const [name, share] of Object.entries(found)) {
      const piece = document.createElementNS(SVG, "rect");
      piece.setAttribute("x", at);
      piece.setAttribute("width", 100 * share);
      piece.setAttribute("height", 6);
      piece.setAttribute("class", PARTS[name]);
      drawing.append(piece);
      at += 100 * share;
    }
    const words = Object.entries(found).map(([name, share]) => `${WORDS[name]} ${percent(share)}`);
    drawing.setAttribute("aria-label", `Share of time: ${words.join(", ")}`);
    box.title = words.join(", ");
    const line = found.line >= 0.005 ? `, ${percent(found.line)} line` : "";
    const said = `${percent(found.waiting)} waiting${line}`;
    box.append(drawing, make("span", said));
    return box;
  };
  const histogram = (lags, all) => {
    const [wide, high] = [22, 64];
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 0 ${wide * lags.length} ${high + 16}`);
    drawing.setAttribute("class", "bars");
    drawing.setAttribute("width", wide * lags.length);
    drawing.setAttribute("height", high + 16);
    drawing.setAttribute("role", "img");
    const most = Math.max(...lags.map(([, count]) => count));
    lags.forEach(([lag, count], place) => {
      const tall = Math.max(1, (high * count) / most);
      const bar = document.createElementNS(SVG, "rect");
      bar.setAttribute("x", place * wide + 2);
      bar.setAttribute("y", high - tall);
      bar.setAttribute("width", wide - 4);
      bar.setAttribute("height", tall);
      bar.setAttribute("class", "bar");
      const name = document.createElementNS(SVG, "text");
      name.setAttribute("x", place * wide + wide / 2);
      name.setAttribute("y", high + 13);
      name.textContent = lag;
      drawing.append(bar, name);
    });
    const words = lags.slice(0, 5).map(([lag, count]) => `lag ${lag}: ${((100 * count) / all).toFixed(1)} %`);
    drawing.setAttribute("aria-label", `Steps by lag. ${words.join(", ")}`);
    return drawing;
  };
  const MOST_BARS = 12;
  const joined = (lags) => {
    if (lags.length <= MOST_BARS) return lags;
    const rest = lags.slice(MOST_BARS - 1);
    return [...lags.slice(0, MOST_BARS - 1), [`${rest[0][0]}+`, rest.reduce((sum, [, count]) => sum + count, 0)]];
  };

  const showParties = (state) => {
    const doing = (each) => {
      if (each.awaited_seconds && each.state === "training") return `holds up the others, ${each.awaited_seconds.toFixed(1)} s`;
      if (each.waits_for.length) return `waits for ${each.waits_for.join(", ")}, ${each.waiting_seconds.toFixed(1)} s`;
      return each.state;
    };
    fill(at("parties"), state.parties.map((each) => labelled("parties", line([
      [each.own ? `${each.name} (this one)` : each.name],
      [doing(each) + (each.stands_out ? ", stands out" : "")],
      [`${number(each.step)}`, "n"],
      [stripe(each.stripe)],
      [each.waited_seconds === null ? "-" : `${each.waited_seconds.toFixed(1)} s`, "n"],
      [shares(each.shares)],
      [number(each.rows_per_second), "n"],
      [bytes(each.bytes_in), "n"],
      [bytes(each.bytes_out), "n"],
      [each.last_seen],
      [number(each.restarts), "n"],
    ], [each.own ? "own" : "", each.awaited_seconds ? "held" : ""].join(" ").trim()))));
    show(at("no-parties"), state.parties.length === 0);
    const refused = Object.entries(state.refused).map(([reason, count]) => `${count} ${reason}`);
    show(at("refused"), refused.length > 0);
    write(at("refused"), `Refused messages: ${refused.join(", ")}.`);
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = () => ({
    stroke: colour("soft"),
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    size: 56,
    values: (_, ticks) => ticks.map((tick) => `${Number(tick.toPrecision(6))}`),
  });

  // As in the report: the colour of each flat line, and its dashes, which theme.css has, too.
  const ALONE = ["alone", [5, 4]];
  const LINES = { joint: ["joint", []], "late fusion": ["fusion", [8, 3, 2, 3]], pooled: ["pooled", []] };
  const swatch = (name) => {
    const drawing = document.createElementNS(SVG, "svg");
    const piece = document.createElementNS(SVG, "line");
    drawing.setAttribute("viewBox", "0 0 26 8");
    drawing.setAttribute("class", "swatch");
    drawing.setAttribute("aria-hidden", "true");
    for (const [key, value] of Object.entries({ x1: 1, x2: 25, y1: 4, y2: 4 })) piece.setAttribute(key, value);
    piece.setAttribute("class", `line ${(LINES[name] || ALONE)[0]}`);
    drawing.append(piece);
    return drawing;
  };

  const begin = (name, curve) => {
    const box = make("figure");
    box.id = `chart-${name}`;
    const value = make("strong");
    const note = make("p", null, "last");
    note.append(value, make("span"));
    const place = make("div", null, "plot");
    const details = make("details");
    const scroll = make("div", null, "scroll");
    scroll.tabIndex = 0;
    const table = make("table");
    table.createTHead();
    table.append(make("tbody"));
    scroll.append(table);
    details.append(make("summary", "As a table"), scroll);
    const legend = make("ul", null, "legend");
    box.append(make("h3", curve.title), note, place, legend, details);
    at("charts").append(box);
    const chart = { box, value, rest: note.lastChild, place, legend, table, details, plot: null, zoomed: false, shape: "" };
    new ResizeObserver(() => {
      if (chart.plot && place.clientWidth) chart.plot.setSize({ width: place.clientWidth, height: place.clientHeight });
    }).observe(place);
    details.addEventListener("toggle", () => last && showChart(name, last.curves[name]));
    charts.set(name, chart);
    return chart;
  };

  const build = (chart, curve) => {
    if (chart.plot) chart.plot.destroy();
    const lines = ["joint", ...curve.levels.map(([name]) => name)].map((name) => [name, ...(LINES[name] || ALONE)]);
    chart.plot = new uPlot({
      width: Math.max(chart.place.clientWidth, 200),
      height: Math.max(chart.place.clientHeight, 120),
      scales: { x: { time: false } },
      legend: { show: false },
      axes: [{ ...axis(), size: 32 }, axis()],
      series: [{}, ...lines.map(([label, name, dash]) => ({ label, stroke: colour(name), width: 2, dash }))],
      hooks: { setSelect: [(plot) => { chart.zoomed = plot.select.width > 0; }] },
    }, data(curve), chart.place);
    chart.plot.over.addEventListener("dblclick", () => { chart.zoomed = false; });
  };
  const data = (curve) => [
    curve[across], curve.values, ...curve.levels.map(([, value]) => curve.values.map(() => value)),
  ];

  const showChart = (name, curve) => {
    if (!curve) return;
    const chart = charts.get(name) || begin(name, curve);
    const shape = `${across} ${curve.levels.map(([level]) => level).join()}`;
    if (shape !== chart.shape) {
      chart.shape = shape;
      chart.zoomed = false;
      build(chart, curve);
    } else {
      chart.plot.setData(data(curve), !chart.zoomed);
    }
    const end = curve.values.length - 1;
    write(chart.value, figure(curve.values[end]));
    write(chart.rest, ` in epoch ${curve.epoch[end]}`);
    show(chart.legend, curve.levels.length > 0);
    chart.legend.replaceChildren(...[["joint", curve.values[end]], ...curve.levels].map(([level, value]) => {
      const item = make("li");
      item.append(swatch(level), `${level} ${figure(value)}`);
      return item;
    }));
    if (!chart.details.open) return;
    const names = ["epoch", "seconds", curve.title, ...curve.levels.map(([level]) => level)];
    const head = make("tr");
    for (const each of names) {
      const cell = make("th", each, "n");
      cell.scope = "col";
      head.append(cell);
    }
    chart.table.tHead.replaceChildren(head);
    fill(chart.table, curve.values.map((value, place) => line([
      [`${curve.epoch[place]}`, "n"], [curve.seconds[place].toFixed(1), "n"], [figure(value), "n"],
      ...curve.levels.map(([, level]) => [figure(level), "n"]),
    ])));
  };

  const showCurves = (state) => {
    const names = Object.keys(state.curves);
    show(at("no-curves"), names.length === 0);
    show(at("across"), names.length > 0);
    show(at("charts"), names.length > 0);
    for (const name of names) showChart(name, state.curves[name]);
    show(at("levels-note"), names.length > 0 && state.levels_note !== "");
    say(at("levels-note"), state.levels_note);
  };

  const epsilon = (value) => (value === null ? "no bound" : `${Number(value.toPrecision(4))}`);
  const showAccounts = (found) => {
    show(at("ledger"), found !== null);
    if (!found) return;
    fill(at("accounts"), found.runs.map((each) => line([
      [each.run], [number(each.releases), "n"], [number(each.evaluations), "n"], [epsilon(each.direct), "n"],
      [epsilon(each.record_level), "n"],
    ])));
    const sum = found.is_record_level ? found.spent.record_level : found.spent.direct;
    const left = found.total === null ? "No total is set (guard.total_epsilon)."
      : `${epsilon(found.left)} is left of guard.total_epsilon ${found.total}.`;
    const spent = sum === null ? "no bound on epsilon" : `epsilon ${epsilon(sum)} at delta ${found.delta.toExponential()}`;
    write(at("spent"), `A row that was in all of these runs: ${spent}. ${left}`);
  };

  const milliseconds = (seconds) => (seconds === null ? "-" : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`);
  const showServing = (found) => {
    show(at("serving"), found !== null);
    if (!found) return;
    write(at("serving-text"), `Over the last minute ${found.requests_per_second.toFixed(1)} requests a second, half of `
      + `them within ${milliseconds(found.p50_seconds)} (p50), 99 % within ${milliseconds(found.p99_seconds)} (p99). `
      + `In all ${number(found.requests)} requests with ${number(found.rows)} rows; ${number(found.refused)} were refused.`);
    const without = Object.entries(found.without).map(([party, count]) => `${party} ${number(count)} times`);
    write(at("serving-without"), without.length ? `Answered without: ${without.join(", ")}.` : "All were answered with all parties.");
  };

  const showRest = (state) => {
    const lines = state.privacy.map((text) => make("li", text[0].toUpperCase() + text.slice(1)));
    at("privacy").replaceChildren(...lines);
    if (state.rows) {
      write(at("rows"), `${number(state.rows.shared)} rows are shared by all: ${number(state.rows.train)} to train on, `
        + `${number(state.rows.held_out)} held out.`);
    }
    const lost = Object.entries((state.rows && state.rows.lost) || {});
    show(at("lost-rows"), lost.length > 0);
    write(at("lost-rows"), `Of this party's training file are not used: ${
      lost.map(([why, count]) => `${number(count)} rows that ${why}`).join(", ")}.`);
    showAccounts(state.accounts);
    showServing(state.serving);
    const lags = Object.entries(state.lag);
    const all = lags.reduce((sum, [, count]) => sum + count, 0);
    show(at("no-lag"), lags.length === 0);
    show(at("lag-box"), lags.length > 0);
    if (lags.length > 0) at("lag-bars").replaceChildren(histogram(joined(lags), all));
    fill(at("lag"), lags.map(([lag, count]) => line([
      [lag, "n"], [number(count), "n"], [`${((100 * count) / all).toFixed(1)} %`, "n"],
    ])));
    fill(at("settings"), state.settings.map(([name, value]) => line([[name], [value]])));
    show(at("resume"), state.next !== null);
    show(at("resume-text"), state.next !== null);
    write(at("resume-text"), state.next ? state.next[0] : "");
    write(at("resume"), state.next ? state.next[1] : "");
  };

  const showAll = (state) => {
    last = state;
    show(at("all"), true);
    const title = `Run ${state.run}, seen by ${state.side}`;
    document.title = `${state.sentence.level === "late" ? "! " : ""}${title}`;
    write(at("title"), title);
    write(at("sentence"), state.sentence.text);
    at("sentence").className = `sentence ${state.sentence.level}`;
    show(at("advice"), state.sentence.advice !== "");
    say(at("advice"), state.sentence.advice);
    show(at("progress"), state.steps > 0);
    at("progress").max = Math.max(1, state.steps);
    at("progress").value = state.step;
    showParties(state);
    showCurves(state);
    showRest(state);
  };

  const rebuild = () => {
    for (const chart of charts.values()) chart.shape = "";
    if (last) showAll(last);
  };
  for (const input of document.querySelectorAll("#across input")) {
    input.addEventListener("change", () => {
      across = input.value;
      rebuild();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);

  const listen = () => {
    const source = new EventSource("/events");
    source.onmessage = (event) => {
      show(at("lost"), false);
      showAll(JSON.parse(event.data));
    };
    source.onerror = () => {
      show(at("lost"), true);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
    };
  };
  listen();
})();
