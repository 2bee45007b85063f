// Shows the newest state: the node makes the page, this replaces what it shows.
"use strict";

const every = 2000; // milliseconds

function say(live, text) {
  document.getElementById("live").dataset.live = live;
  document.getElementById("live-text").textContent = text;
  document.body.classList.toggle("lost", live === "lost");
}

async function renew() {
  try {
    const resp = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(5 * every) });
    if (!resp.ok) throw new Error(resp.statusText);
    const page = new DOMParser().parseFromString(await resp.text(), "text/html");
    for (const part of ["main", "footer"]) {
      const [shown, now] = [document.querySelector(part), page.querySelector(part)];
      if (shown.outerHTML !== now.outerHTML) shown.replaceWith(now); // or a selection would be lost
    }
    say("on", "live");
  } catch {
    say("lost", "no answer");
  }
  setTimeout(renew, every);
}

setTimeout(renew, every);
