// The key browser: a list of keys, the value of one, and their changes, by the HTTP API of
// the same origin (docs/http.md). Keys and values are other people's: they enter the page as
// text alone.
"use strict";

const $ = (id) => document.getElementById(id);
const pageSize = 100; // keys of a request
const maxKeys = 1000; // keys that the page holds
const maxShown = 64 << 10; // bytes of a value that are shown
const maxUnit = 8 << 20; // characters of changes that belong together
const firstWait = 500, lastWait = 10000; // ms before another attempt

let keys = new Map(); // by name; their values are what they are sorted by
let run = null; // the AbortController of all that is under way
let next = ""; // the page after the keys; "": there is none
let selected = null; // the name of a key; null: none

// A key's name is its bytes, percent-encoded, as in the address: keys need not be UTF-8.
const encode = (bytes) => Array.from(bytes, (b) => (/[\w/.:-]/.test(String.fromCharCode(b)) ? String.fromCharCode(b) : "%" + b.toString(16).padStart(2, "0"))).join("");
const utf8 = new TextEncoder();
const bytesOf = (k, name) => (k[name + "_base64"] !== undefined ? Uint8Array.from(atob(k[name + "_base64"]), (c) => c.charCodeAt(0)) : utf8.encode(k[name] ?? ""));
const nameOf = (k) => encode(bytesOf(k, "key"));

// rawOf returns a name's bytes as characters: they compare as etcd's keys do.
const rawOf = (name) => name.replace(/%([0-9a-f]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
const sorted = () => [...keys].sort(([, a], [, b]) => (a < b ? -1 : 1)).map(([name]) => name);

// labelOf returns a name as people read it; bytes that are not UTF-8 stay encoded.
function labelOf(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function say(text, level = "ok") {
  $("status").dataset.level = level;
  if ($("status").textContent !== text) $("status").textContent = text;
}

// Refused is an answer that is no success.
class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
  get credentials() { return this.status === 401 || this.status === 403; }
  get final() { return this.status >= 400 && this.status < 500 && this.status !== 429; }
}

async function call(path, query, signal, headers = {}) {
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path + "?" + Object.entries(query).map(([k, v]) => k + "=" + v).join("&"), { headers, signal, cache: "no-store" });
  if (answer.ok) return answer;
  let text = answer.statusText;
  try {
    text = (await answer.json()).message || text;
  } catch { /* not JSON */ }
  throw new Refused(answer.status, text);
}

// draw shows the keys. Elements of keys that stay are kept, and with them the focus.
function draw() {
  const old = new Map([...$("keys").children].map((li) => [li.dataset.name, li]));
  let at = $("keys").firstElementChild;
  for (const name of sorted()) {
    let li = old.get(name);
    if (!li) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = labelOf(name);
      li = document.createElement("li");
      li.dataset.name = name;
      li.append(button);
    }
    old.delete(name);
    if (name === selected) li.firstChild.setAttribute("aria-current", "true");
    else li.firstChild.removeAttribute("aria-current");
    if (li === at) at = at.nextElementSibling;
    else $("keys").insertBefore(li, at);
  }
  for (const li of old.values()) li.remove();
  $("none").hidden = keys.size > 0;
  $("more").hidden = !next || keys.size >= maxKeys;
}

// textOf returns a value as text, JSON or bytes in hexadecimal, and what is left out.
function textOf(bytes) {
  const cut = bytes.length > maxShown ? `\n… and ${bytes.length - maxShown} bytes more` : "";
  const part = bytes.subarray(0, maxShown);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(part, { stream: cut !== "" });
  } catch {
    return Array.from(part, (b) => b.toString(16).padStart(2, "0")).join(" ") + cut;
  }
  if (!cut) {
    try {
      text = JSON.stringify(JSON.parse(text), null, 2).slice(0, 4 * maxShown);
    } catch { /* not JSON */ }
  }
  return text + cut;
}

function show(k) {
  $("name").textContent = labelOf(selected);
  $("value").hidden = !k;
  if (!k) {
    $("meta").textContent = "This key does not exist.";
    return;
  }
  const value = bytesOf(k, "value");
  $("meta").textContent = `${value.length.toLocaleString("en")} bytes, changed at revision ${k.mod_revision}, version ${k.version}` + (k.lease ? `, lease ${k.lease.toString(16)}` : "");
  $("value").textContent = textOf(value);
}

const prefix = () => encode(utf8.encode($("prefix").value));

// list gets a page of keys, and returns the token from which a watch continues.
async function list(signal, more) {
  const query = { prefix: prefix(), limit: pageSize, keys_only: true };
  if (more) query.page = next;
  const got = await (await call("/v1/keys", query, signal)).json();
  if (!more) keys = new Map();
  for (const k of got.keys.slice(0, maxKeys - keys.size)) keys.set(nameOf(k), rawOf(nameOf(k)));
  next = got.next_page;
  draw();
  return got.token;
}

async function select(name, signal) {
  selected = name;
  remember();
  draw();
  const got = await (await call("/v1/keys", { key: name }, signal)).json();
  if (selected === name) show(got.keys[0]);
}

// apply brings the page up to date with changes that belong together: see docs/protocol.md.
function apply(parts) {
  for (const { type, data } of parts) {
    if (data.begin && (type === "resync" || type === "state")) keys.clear();
    const last = next && keys.size ? keys.get(sorted().at(-1)) : undefined; // more pages lie behind it
    for (const k of [...(data.keys ?? []), ...(data.events ?? []), ...(data.deleted ?? [])]) {
      const name = nameOf(k);
      const gone = k.mod_revision === undefined || k.type === "DELETE";
      if (gone) keys.delete(name);
      else if (keys.has(name) || (keys.size < maxKeys && (last === undefined || rawOf(name) < last))) keys.set(name, rawOf(name));
      if (name === selected) show(gone ? undefined : k);
    }
  }
  draw();
}

// events yields server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const e = { type: "", data: "", id: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) e.type = line.slice(7);
        if (line.startsWith("data: ")) e.data += line.slice(6);
        if (line.startsWith("id: ")) e.id = line.slice(4);
      }
      if (e.data) yield { type: e.type, id: e.id, size: e.data.length, data: JSON.parse(e.data) };
    }
    if (rest.length > maxUnit) throw new TooMuch();
  }
}

// TooMuch: the keys are listed again.
class TooMuch extends Error {}

// follow applies changes after a token, and continues after the last ones when the stream breaks.
async function follow(last, signal) {
  for (let wait = firstWait; ; wait = Math.min(2 * wait, lastWait)) {
    try {
      const answer = await call("/v1/watch", { prefix: prefix(), conflate: "500ms" }, signal, { "Last-Event-ID": last });
      let unit = [], size = 0;
      for await (const e of events(answer.body)) {
        wait = firstWait;
        if (e.type === "end") break;
        say("Changes are shown as they come.");
        if (e.data.begin) unit = [], size = 0;
        unit.push(e);
        size += e.size;
        if (size > maxUnit) throw new TooMuch();
        if (!e.id) continue;
        apply(unit);
        unit = [], size = 0;
        last = e.id;
      }
      say("The node has ended the stream. Trying again.", "bad");
    } catch (err) {
      if (err.name === "AbortError" || err instanceof TooMuch || err.final) throw err;
      say(`No connection: ${err.message}. Trying again.`, "bad");
    }
    await pause(wait, signal);
  }
}

async function pause(ms, signal) {
  await new Promise((done) => setTimeout(done, ms));
  signal.throwIfAborted();
}

// start lists and follows until the page is to show something else.
async function start() {
  run?.abort();
  run = new AbortController();
  const { signal } = run;
  for (let wait = firstWait; ; wait = Math.min(2 * wait, lastWait)) {
    try {
      say("Listing.", "wait");
      const token = await list(signal, false);
      $("login").hidden = true;
      if (selected !== null) await select(selected, signal);
      await follow(token, signal);
    } catch (err) {
      if (err.name === "AbortError") return;
      if (fail(err)) return;
      // The token is of another cluster or lineage, or there was too much: list again.
      await new Promise((done) => setTimeout(done, wait));
      if (signal.aborted) return;
    }
  }
}

// fail shows an error, and reports whether only the reader can help.
function fail(err) {
  if (err.name === "AbortError") return true;
  if (err.credentials) $("login").hidden = false;
  say(err.status ? `${err.status}: ${err.message}` : `No connection: ${err.message}`, "bad");
  return Boolean(err.credentials);
}

function remember() {
  history.replaceState(null, "", "#prefix=" + prefix() + (selected === null ? "" : "&key=" + selected));
}

function recall() {
  const at = new Map(location.hash.slice(1).split("&").map((p) => p.split("=", 2)));
  $("prefix").value = labelOf(at.get("prefix") ?? "");
  selected = at.get("key") ?? null;
  $("value").hidden = true;
  start();
}

$("where").addEventListener("submit", (e) => {
  e.preventDefault();
  remember();
  start();
});
$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  $("token").value = "";
  start();
});
$("keys").addEventListener("click", (e) => {
  const li = e.target.closest("li");
  if (li) select(li.dataset.name, run.signal).catch(fail);
});
$("more").addEventListener("click", () => list(run.signal, true).catch(fail));
addEventListener("hashchange", recall);
recall();
