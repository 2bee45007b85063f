// The status page: shows each view that the node sends, whole. The server says
// the meaning of a state; this file has only its looks. See view.go for the fields.
"use strict";

const $ = (id) => document.getElementById(id);
const levels = { ok: "ok", thin: "warn", loading: "warn", "taken over": "warn", stale: "bad", quarantined: "warn", away: "bad", down: "bad" };
const ranks = Object.keys(levels);
const worse = (a, b) => (ranks.indexOf(b) > ranks.indexOf(a) ? b : a);
const maxRows = 24; // of nodes in the map

let view = null; // the last one
let heard = 0; // when it came
let chosen = null; // the ID of the chosen group's first shard; null: the page chooses
let columns = []; // columns of the map: groups, or several of them together

// --- words ---

const plural = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

function bytes(n) {
  if (n < 1024) return `${n} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    n /= 1024;
    if (n < 1024 || unit === "TiB") return `${n.toFixed(n < 10 ? 1 : 0)} ${unit}`;
  }
}

function short(n) {
  if (n < 10000) return n.toLocaleString("en");
  for (const unit of ["k", "M", "G"]) {
    n /= 1000;
    if (n < 1000 || unit === "G") return `${n.toFixed(n < 100 ? 1 : 0)} ${unit}`;
  }
}

function time(s) {
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.floor(s / 60)} min${s < 600 && Math.floor(s % 60) ? ` ${Math.floor(s % 60)} s` : ""}`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// reach is how far back a window goes: not at all while nothing has happened.
const reach = (s) => (s ? time(s) : "no events");

// --- the document ---

// el makes an element; a child that is neither node nor null becomes text.
function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  set(e, attrs || {});
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

// set changes only differing values, so that nothing is drawn or read out twice.
function set(e, attrs) {
  for (const [k, v] of Object.entries(attrs)) {
    if (k === "text") {
      if (e.textContent !== v) e.textContent = v;
    } else if (k.startsWith("--")) {
      e.style.setProperty(k, v);
    } else if (v === null || v === undefined || v === false) {
      e.removeAttribute(k);
    } else if (e.getAttribute(k) !== String(v)) {
      e.setAttribute(k, v);
    }
  }
  return e;
}

// keep makes the children of e those of items, by key, and keeps the elements of
// those that stay: with them the focus.
function keep(e, items, key, make, update) {
  const old = new Map([...e.children].map((c) => [c.dataset.key, c]));
  let at = e.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let c = old.get(k);
    if (!c) {
      c = make(item);
      c.dataset.key = k;
    }
    old.delete(k);
    if (c === at) at = at.nextElementSibling;
    else e.insertBefore(c, at);
    if (update) update(c, item);
  }
  for (const c of old.values()) c.remove();
}

// redraw replaces the children of e when they would differ.
function redraw(e, ...children) {
  const box = el(e.tagName, null, ...children);
  if (box.innerHTML !== e.innerHTML || [...box.querySelectorAll("[style]")].length) e.replaceChildren(...box.childNodes);
}

// --- the map ---

// merge makes one column of neighbours.
function merge(groups) {
  if (groups.length === 1) return groups[0];
  const out = { id: groups[0].id, count: 0, from: groups[0].from, to: groups.at(-1).to, state: "ok", epoch: 0, copies: [] };
  const at = new Map();
  for (const g of groups) {
    out.count += g.count;
    out.state = worse(out.state, g.state);
    for (const c of g.copies) {
      let sum = at.get(c.node);
      if (!sum) {
        sum = { node: c.node, state: "ok", span_seconds: Infinity };
        at.set(c.node, sum);
        out.copies.push(sum);
      }
      for (const k of ["owned", "replica", "relay", "direct", "keys", "bytes", "watchers"]) sum[k] = (sum[k] || 0) + (c[k] || 0);
      for (const k of ["lag", "age_seconds", "verified_seconds"]) sum[k] = Math.max(sum[k] || 0, c[k] || 0);
      sum.span_seconds = Math.min(sum.span_seconds, c.span_seconds || 0);
      sum.state = worse(sum.state, c.state);
    }
  }
  return out;
}

// fit merges groups until the columns are wide enough for a finger or a pointer.
function fit(groups, width) {
  const each = Math.max(1, Math.ceil(groups.length / Math.max(8, Math.floor(width / 11))));
  const out = [];
  for (let i = 0; i < groups.length; i += each) out.push(merge(groups.slice(i, i + each)));
  return out;
}

const own = (g) => g.copies.filter((c) => !c.relay || c.owned || c.replica);
const serving = (g) => own(g).filter((c) => c.state === "ok" || c.state === "stale");
const ownerOf = (g) => g.copies.find((c) => c.owned);
const labelOf = (g) => (g.count === 1 ? `Shard ${g.id}` : `${g.count} shards from ${g.id}`);
const spanOf = (g) => (serving(g).length ? Math.min(...serving(g).map((c) => c.span_seconds || 0)) : 0);
const ageOf = (g) => (serving(g).length ? Math.max(...serving(g).map((c) => c.age_seconds || 0)) : 0);
const lagOf = (g) => Math.max(0, ...serving(g).map((c) => c.lag || 0));
const sum = (g, k) => g.copies.reduce((n, c) => n + (c[k] || 0), 0);

function keysOf(g) {
  if (g.from === undefined) return "";
  if (!g.from && !g.to) return "all keys";
  if (!g.to) return `keys from ${g.from}`;
  if (!g.from) return `keys below ${g.to}`;
  return `keys from ${g.from} to ${g.to}`;
}

function choose(id, focus) {
  chosen = id;
  draw();
  if (focus) document.querySelector(".tab[tabindex='0']")?.focus();
}

// present is the chosen column: the one with the chosen shard, or else the worst.
function present() {
  if (chosen !== null) {
    const ids = view.groups.map((g) => g.id);
    let at = -1;
    columns.forEach((c, i) => {
      if (ids.indexOf(c.id) <= ids.indexOf(chosen)) at = i;
    });
    if (at >= 0 && ids.includes(chosen)) return columns[at];
  }
  return columns.reduce((a, b) => (ranks.indexOf(b.state) > ranks.indexOf(a.state) ? b : a), columns[0]);
}

function nodesInMap() {
  const all = view.nodes.map((n, i) => ({ ...n, index: i })).filter((n) => n.state !== "left" || n.owned || n.replicas);
  if (all.length <= maxRows) return all;
  const bad = { bad: 0, warn: 1, ok: 2 };
  return all.sort((a, b) => bad[a.level] - bad[b.level] || b.owned - a.owned).slice(0, maxRows).sort((a, b) => a.index - b.index);
}

function drawMap() {
  const map = $("map");
  columns = fit(view.groups, map.clientWidth - 100);
  map.hidden = columns.length === 0;
  if (!columns.length) return;
  $("wrong").hidden = !view.groups.some((g) => g.copies.some((c) => c.state === "quarantined"));
  const now = present();
  const gap = columns.length > 60 ? "1px" : columns.length > 30 ? "2px" : "3px";
  const wide = (map.clientWidth - 120) / columns.length;
  const nodes = nodesInMap();
  set(map, { "--cell": nodes.length > 8 ? "15px" : "26px" });
  const rows = [{ kind: "tabs", key: "tabs", name: "" }];
  for (const n of nodes) rows.push({ kind: "node", key: `node ${n.name}`, name: n.name, node: n });
  rows.push({ kind: "rule", key: "rule" });
  // Data of five seconds is stale: a second is a small bar, however fresh the rest.
  for (const [name, of, say, full] of [["Window", spanOf, reach, 0], ["Age", ageOf, time, 5], ["Watchers", (g) => sum(g, "watchers"), short, 0]]) {
    rows.push({ kind: "bars", key: name, name, of, say, full });
  }
  const flat = rows.flatMap((r) => (r.kind === "rule" ? [{ ...r, part: "rule" }] : [{ ...r, part: "name" }, { ...r, part: "strip" }]));
  keep(map, flat, (r) => `${r.key} ${r.part}`, (r) => {
    if (r.part === "rule") return el("div", { class: "rule" });
    if (r.part === "name") return el("div", { class: r.kind === "bars" ? "name dim" : "name" });
    if (r.kind === "tabs") return el("div", { class: "strip tabs", role: "tablist", "aria-label": "Shards in the order of their keys; arrow keys choose" });
    return el("div", { class: r.kind === "bars" ? "strip bars" : "strip", "aria-hidden": "true" });
  }, (e, r) => {
    if (r.part === "rule") return;
    if (r.part === "name") {
      if (r.kind === "bars") {
        const top = Math.max(...columns.map(r.of));
        redraw(e, r.name, el("span", { class: "most" }, top || r.of !== spanOf ? ` ≤ ${r.say(top)}` : `: ${r.say(top)}`));
      } else {
        set(e, { text: r.name, title: r.name || null, "data-level": r.node ? r.node.level : null });
      }
      return;
    }
    set(e, { "--gap": gap });
    if (r.kind === "tabs") drawTabs(e, now, wide);
    else if (r.kind === "bars") drawBars(e, r, now);
    else drawCells(e, r.node, now);
  });
}

function drawTabs(e, now, wide) {
  keep(e, columns, (g) => g.id, (g) => {
    const b = el("button", { class: "tab", role: "tab", type: "button", "aria-controls": "detail" });
    b.addEventListener("click", () => choose(Number(b.dataset.key), true));
    return b;
  }, (b, g) => set(b, {
    text: wide >= 24 ? String(g.id) : "",
    "aria-label": `${labelOf(g)}, ${g.state}${keysOf(g) ? `, ${keysOf(g)}` : ""}`,
    title: `${labelOf(g)}: ${g.state}`,
    "aria-selected": g === now, tabindex: g === now ? 0 : -1, "data-level": levels[g.state],
  }));
  e.onkeydown = (event) => {
    const at = columns.indexOf(present());
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: columns.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(columns[Math.min(columns.length - 1, Math.max(0, to))].id, true);
  };
}

function drawCells(e, node, now) {
  keep(e, columns, (g) => g.id, (g) => {
    const c = el("div", { class: "cell" }, el("span", { class: "rep" }), el("span", { class: "own" }));
    c.addEventListener("click", () => choose(Number(c.dataset.key)));
    return c;
  }, (c, g) => {
    const copy = g.copies.find((x) => x.node === node.index);
    const owned = (copy?.owned || 0) / g.count;
    const held = owned + (copy?.replica || 0) / g.count;
    const names = ["cell"];
    if (copy) {
      if (copy.relay && !held) names.push("relay");
      if (held && copy.state !== "ok") names.push(copy.state);
      if (g.count === 1 && copy.direct && !copy.owned) names.push("direct");
    }
    if (g === now) names.push("chosen");
    const took = g.count === 1 && copy?.direct ? "yes" : "no";
    if (c.dataset.direct === "no" && took === "yes") names.push("took");
    else if (c.classList.contains("took") && took === "yes") names.push("took");
    set(c, { class: names.join(" "), "data-direct": took, title: copy ? `${node.name}, ${labelOf(g).toLowerCase()}: ${roleOf(copy)}, ${copy.state}` : null });
    set(c.firstChild, { "--rep": held.toFixed(3) });
    set(c.lastChild, { "--own": owned.toFixed(3) });
  });
}

function drawBars(e, row, now) {
  const top = Math.max(1e-9, row.full, ...columns.map(row.of));
  keep(e, columns, (g) => g.id, (g) => {
    const b = el("div", {});
    b.addEventListener("click", () => choose(Number(b.dataset.key)));
    return b;
  }, (b, g) => set(b, { class: g === now ? "bar chosen" : "bar", "--h": (row.of(g) / top).toFixed(3), title: `${labelOf(g)}: ${row.name.toLowerCase()} ${row.say(row.of(g))}` }));
}

function roleOf(c) {
  const parts = [];
  if (c.owned) parts.push(c.owned === 1 ? "owner" : `owner of ${c.owned}`);
  if (c.replica) parts.push(c.replica === 1 ? "replica" : `replica of ${c.replica}`);
  if (c.relay) parts.push(c.relay === 1 ? "relay" : `relay of ${c.relay}`);
  return parts.join(", ");
}

function drawDetail() {
  const g = columns.length ? present() : null;
  if (!g) {
    redraw($("detail"), el("p", { class: "none" }, "There is no shard map yet."));
    return;
  }
  const longest = Math.max(1e-9, ...g.copies.map((c) => c.span_seconds || 0));
  const about = [keysOf(g)];
  if (g.epoch) about.push(`epoch ${g.epoch}`);
  const compared = g.copies.filter((c) => c.verified_seconds).map((c) => c.verified_seconds);
  if (compared.length) about.push(`copies compared ${time(g.count === 1 ? Math.min(...compared) : Math.max(...compared))} ago: equal`);
  redraw($("detail"),
    el("h3", null, labelOf(g), el("span", { class: "tag", "data-level": levels[g.state] }, g.state), el("span", null, about.filter(Boolean).join(" · "))),
    el("table", { class: "cards" },
      el("thead", null, el("tr", null, ...["Node", "Events from", "Window reaches back", "Lag", "Data is old", "Watchers", "Keys", "Memory"].map((t, i) => el("th", { scope: "col", class: i > 2 ? "n" : null }, t)))),
      el("tbody", null, g.copies.map((c) => {
        const off = c.state === "away";
        const td = (label, text, more) => el("td", { "data-label": label, ...more }, off ? "–" : text);
        return el("tr", null,
          el("td", null, view.nodes[c.node].name, " ", el("span", { class: "tag" }, roleOf(c)), " ", c.state === "ok" ? null : el("span", { class: "tag", "data-level": levels[c.state] }, c.state)),
          td("Events from", c.source || (c.direct ? `etcd, ${c.direct}` : "–"), { class: "wide" }),
          el("td", { "data-label": "Window", class: "wide" }, off ? "–" : el("span", { class: "span" }, set(el("i"), { "--h": ((c.span_seconds || 0) / longest).toFixed(3) }), el("b", null, reach(c.span_seconds)))),
          td("Lag", short(c.lag || 0), { class: "n" }), td("Age", time(c.age_seconds || 0), { class: "n" }),
          td("Watchers", short(c.watchers || 0), { class: "n" }), td("Keys", c.relay && !c.owned && !c.replica ? "–" : short(c.keys || 0), { class: "n" }), td("Memory", bytes(c.bytes || 0), { class: "n" }));
      }))));
}

// --- the rest ---

function drawFigures() {
  const t = view.totals;
  const f = [
    ["etcd revision", view.etcd.known ? view.etcd.revision.toLocaleString("en") : "–", view.etcd.known ? `read ${time(view.etcd.age_seconds)} ago` : "etcd does not answer"],
    ["Shards", short(t.shards), `map ${view.map_version.toLocaleString("en")}, level ${view.feature_level}`],
    ["Copies that serve", t.wanted_copies ? `${short(t.copies)} of ${short(t.wanted_copies)}` : "–", `${plural(t.keys, "key")}`],
    ["Watches of clients", short(t.watches), "on all nodes"],
    ["Watches at etcd", short(t.etcd_watches), `for ${plural(t.shards, "shard")}`],
    ["Memory", bytes(t.bytes), "state, windows, deletes"],
  ];
  keep($("figures"), f, (x) => x[0], (x) => el("div", null, el("dt", null, x[0]), el("dd", null, el("span"), el("small"))), (e, x) => {
    set(e.querySelector("span"), { text: x[1] });
    set(e.querySelector("small"), { text: x[2] });
  });
}

const href = (n) => (n.http ? `${location.protocol}//${n.http}/` : null);

function drawNodes() {
  const shown = nodesInMap();
  keep($("nodes"), shown, (n) => n.name, () => el("tr", null, ...Array.from({ length: 9 }, () => el("td"))), (row, n) => {
    const cells = row.children;
    set(row, { class: n.answers ? null : "mute" });
    const name = n.name === view.self || !href(n) ? el("strong", null, n.name) : el("a", { href: href(n) }, el("strong", null, n.name));
    const tags = [];
    if (n.state !== "alive" || !n.answers) tags.push([n.state === "alive" ? "no answer" : n.state, n.level]);
    if (n.draining) tags.push(["draining", "warn"]);
    if (n.leader) tags.push(["leader"]);
    else if (n.voter) tags.push(["voter"]);
    if (n.zone) tags.push([n.zone]);
    if (n.weight !== 1) tags.push([`weight ${n.weight}`]);
    if (n.feature_level && n.feature_level !== view.feature_level) tags.push([`level ${n.feature_level}`, n.feature_level < view.feature_level ? "warn" : undefined]);
    if (n.name === view.self) tags.push(["this page"]);
    redraw(cells[0], el("span", { class: "who" }, name, tags.map(([t, l]) => el("span", { class: "tag", "data-level": l }, t))), n.note ? el("div", { class: "note", "data-level": n.level }, n.note) : null);
    const figures = [["Owner of", short(n.owned)], ["Replicas", short(n.replicas)], ["Relays", short(n.relays)], ["Watches", short(n.watches)],
      ["Lag", short(n.lag)], ["Age", time(n.age_seconds)], ["Memory", bytes(n.bytes)], ["Up", time(n.uptime_seconds)]];
    figures.forEach(([label, text], i) => set(cells[i + 1], { class: "n", "data-label": label, text: n.answers || i < 2 ? text : "–" }));
  });
  const hidden = view.nodes.length - shown.length;
  set($("more-nodes"), { hidden: hidden <= 0, text: `${plural(hidden, "more node")}: cachectl status shows all.` });
}

function drawNews() {
  const fresh = $("news").children.length > 0;
  keep($("news"), view.news || [], (e) => `${view.self} ${e.id}`, (e) => {
    const at = new Date(e.at);
    return el("li", { "data-level": e.level, class: fresh ? "new" : null },
      el("time", { datetime: e.at, title: at.toLocaleString() }, at.toLocaleTimeString("en-GB")), el("i", { "aria-hidden": "true" }), el("span", null, e.text));
  });
  $("no-news").hidden = (view.news || []).length > 0;
}

function drawTable() {
  if (!$("all").open) return;
  keep($("table"), view.groups, (g) => g.id, () => el("tr", null, ...Array.from({ length: 11 }, (_, i) => el("td", { class: i > 3 ? "n" : null }))), (row, g) => {
    const owner = ownerOf(g);
    const texts = [g.count === 1 ? String(g.id) : `${g.id} and ${g.count - 1} more`, g.from === undefined ? "–" : g.from || "the first key",
      owner && g.count === 1 ? view.nodes[owner.node].name : "–", g.state, `${serving(g).length} of ${own(g).length}`, reach(spanOf(g)), short(lagOf(g)),
      time(ageOf(g)), short(sum(g, "watchers")), short(Math.max(0, ...g.copies.map((c) => c.keys || 0))), bytes(sum(g, "bytes"))];
    texts.forEach((text, i) => set(row.children[i], { text }));
  });
}

function draw() {
  if (!view) return;
  set($("self"), { text: view.self });
  document.title = `${view.level === "ok" ? "" : "! "}${view.self} · Shardwatch`;
  drawFigures();
  drawMap();
  drawDetail();
  drawNodes();
  drawNews();
  drawTable();
  set($("keys-page"), { href: view.keys_page, hidden: !view.keys_page });
  drawVerdict();
}

function drawVerdict() {
  const lost = lostFor() > 0;
  document.body.classList.toggle("lost", lost && view !== null);
  if (!lost && view) {
    set($("verdict"), { "data-level": view.level });
    set($("verdict-text"), { text: view.verdict });
    $("elsewhere").hidden = true;
    return;
  }
  if (!lost) return;
  set($("verdict"), { "data-level": "bad" });
  set($("verdict-text"), { text: view ? `${view.self} does not answer this page any more. What is shown is from then.` : "This node does not answer this page." });
  const others = view ? view.nodes.filter((n) => n.name !== view.self && n.answers && href(n)).slice(0, 8) : [];
  $("elsewhere").hidden = !others.length;
  if ($("elsewhere").dataset.for !== others.map((n) => n.name).join()) {
    $("elsewhere").dataset.for = others.map((n) => n.name).join();
    $("elsewhere").replaceChildren("It is tried again. The others see the same: ", ...others.flatMap((n, i) => [i ? " · " : "", el("a", { href: href(n) }, n.name)]));
  }
}

// --- the stream ---

let source = null;
let broken = 0; // since when there is no stream; 0: there is one
let pause = 1000;

// lostFor is for how many seconds nothing was heard that should have been.
function lostFor() {
  const now = Date.now();
  if (broken && now - broken > 1500) return (now - Math.max(heard, broken - 1)) / 1000;
  const due = view ? view.next_seconds * 2000 + 6000 : 10000;
  return heard && now - heard > due ? (now - heard) / 1000 : 0;
}

function connect() {
  source = new EventSource("/status/stream");
  source.onopen = () => {
    pause = 1000;
  };
  source.onmessage = (m) => {
    view = JSON.parse(m.data);
    heard = Date.now();
    broken = 0;
    draw();
    tick();
  };
  source.onerror = () => {
    broken ||= Date.now();
    source.close(); // the browser gives up after some answers; we do not
    setTimeout(connect, pause);
    pause = Math.min(2 * pause, 5000);
    tick();
  };
}

function tick() {
  const lost = lostFor();
  const live = lost ? "lost" : view ? "on" : "wait";
  set($("live"), { "data-live": live });
  set($("live-text"), { text: lost ? `lost ${time(Math.round((Date.now() - (heard || broken)) / 1000))} ago` : view ? "live" : "connecting" });
  drawVerdict();
}

$("all").addEventListener("toggle", draw);
let resizing = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(draw);
});
setInterval(tick, 1000);
connect();
