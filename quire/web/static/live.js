// @ts-check
/* Keeps a server-rendered page fresh. The page is its own API: when something happens its address
 * is fetched again, and what differs is moved into the elements marked live. The vocabulary:
 *
 *   <body data-stream-at="…">   the stream of events to follow; empty means that nothing changes
 *   <div id="…" data-live>      a part to keep fresh; it must have an id
 *   <form data-act>             posts in place; without this script it posts and redirects
 *
 * A page in a hidden tab follows nothing, as a browser has few connections to one server.
 */

const THROTTLE_MS = 1000; // at most one fetch per second
const POLL_MS = 30_000; // in case a proxy buffers the stream
const AGAIN_MS = 3000; // after a failure

/** Change `old` into `next`; matching nodes are kept, with focus, checkboxes and scrolling. */
export function morph(/** @type {Element} */ old, /** @type {Element} */ next) {
  const chosen = chosenIn(old) === chosenIn(next) ? null : chosenIn(next);
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const isOpened = name === "open" && old.localName === "details";
    if (!next.hasAttribute(name) && !isOpened) old.removeAttribute(name);
  }
  const byId = new Map([...old.children].map((each) => [idOf(each), each]));
  let here = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const had = (idOf(wanted) && byId.get(idOf(wanted))) || here;
    if (!had || !isAlike(had, wanted)) {
      old.insertBefore(document.importNode(wanted, true), here);
      continue;
    }
    if (had === here) here = here.nextSibling;
    else old.insertBefore(had, here);
    if (had instanceof Element && wanted instanceof Element) morph(had, wanted);
    else if (had.nodeValue !== wanted.nodeValue) had.nodeValue = wanted.nodeValue;
  }
  while (here) {
    const gone = here;
    here = here.nextSibling;
    gone.remove();
  }
  // An option that a person once chose ignores its attribute, so the new choice is set by hand.
  if (chosen !== null && old instanceof HTMLSelectElement) old.value = chosen;
}

/** Return the value that the server chose in a select, whatever a person chose since. */
const chosenIn = (/** @type {Element} */ select) =>
  select.localName === "select" ? select.querySelector("option[selected]")?.getAttribute("value") ?? null : null;

/** Return a node's id. A form with a field called id has that field as its `id`. */
const idOf = (/** @type {Node} */ node) => (node instanceof Element && node.getAttribute("id")) || "";

const isAlike = (/** @type {Node} */ a, /** @type {Node} */ b) =>
  a.nodeName === b.nodeName && idOf(a) === idOf(b);

/** Show a notice above the page; `tone` is "bad" for errors. */
function say(/** @type {string} */ text, tone = "") {
  const notice = document.getElementById("notice");
  if (!notice) return;
  notice.className = `notice ${tone}`.trim();
  if (notice.textContent !== text) notice.textContent = text;
}

const parsed = async (/** @type {Response} */ reply) =>
  new DOMParser().parseFromString(await reply.text(), "text/html");

/** Move what differs in a page that was fetched into this one. */
function show(/** @type {Document} */ page) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = page.getElementById(part.id);
    if (next) morph(part, next);
  }
  document.title = page.title;
  document.dispatchEvent(new Event("quire:shown"));
}

/** Show in place of this page that what it showed is no longer there. */
function end(/** @type {Document} */ page) {
  const [old, next] = [document, page].map((each) => each.querySelector("main"));
  if (old && next) old.replaceChildren(...[...next.childNodes].map((n) => document.importNode(n, true)));
  document.title = page.title;
  say("What was shown here has been deleted.", "bad");
  isOver = true;
  close();
}

let isBusy = false;
let isWanted = false;
let isOver = false;
let hasError = false;
let acts = 0; // forms submitted and answered; a page fetched across one may be older than the answer

/** Fetch this page and show what differs; calls made meanwhile become one more. */
export async function refresh() {
  if (isBusy) return void (isWanted = true);
  if (isOver || document.hidden) return;
  isBusy = true;
  let pause = THROTTLE_MS;
  try {
    const before = acts;
    const reply = await fetch(location.href, { headers: { Accept: "text/html" } });
    const page = await parsed(reply);
    if (acts !== before) isWanted = true;
    else if (reply.redirected && new URL(reply.url).pathname === "/sign-in") location.assign(reply.url);
    else if (reply.ok) recovered(page);
    else if (reply.status === 404 || reply.status === 410) end(page);
    else pause = showError(`${page.querySelector("#error h1")?.textContent ?? reply.statusText}.`);
  } catch {
    pause = showError("The server cannot be reached.");
  }
  await new Promise((done) => setTimeout(done, pause));
  isBusy = false;
  if (isWanted) {
    isWanted = false;
    void refresh();
  }
}

function recovered(/** @type {Document} */ page) {
  if (hasError) say("");
  hasError = false;
  show(page);
}

function showError(/** @type {string} */ text) {
  say(`${text} This page retries automatically.`, "bad");
  hasError = isWanted = true;
  return AGAIN_MS;
}

/** Submit a form in place and show the resulting page. */
async function act(/** @type {SubmitEvent} */ event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.matches("form[data-act]")) return;
  event.preventDefault();
  const body = new URLSearchParams();
  for (const [name, value] of new FormData(form, event.submitter)) body.append(name, String(value));
  acts += 1;
  try {
    const reply = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
    if (!reply.ok) {
      const told = await reply.json();
      say([told.detail, told.remedy].filter(Boolean).join(" "), "bad");
    } else if (new URL(reply.url).pathname !== location.pathname) {
      return location.assign(reply.url);
    } else {
      const page = await parsed(reply);
      acts += 1;
      say(page.getElementById("notice")?.textContent?.trim() ?? "");
      show(page);
    }
  } catch {
    say("The server cannot be reached. Nothing is known of what was asked; look again.", "bad");
  }
  void refresh();
}

/** @type {EventSource | null} */
let stream = null;
const mark = (/** @type {string} */ state) => (document.documentElement.dataset.stream = state);

function close() {
  stream?.close();
  stream = null;
}

function open() {
  const address = document.body.dataset.streamAt;
  if (!address || stream || isOver || document.hidden) return;
  const opened = (stream = new EventSource(address));
  opened.onopen = () => (mark("live"), void refresh()); // what happened meanwhile was missed
  opened.onmessage = (message) => void (message.data !== "{}" && refresh());
  opened.onerror = () => {
    mark("lost");
    if (opened.readyState === EventSource.CLOSED) leave();
  };
  opened.addEventListener("bye", leave);
}

/** Give a stream up that was refused or has said goodbye, and come back later. */
function leave() {
  close();
  void refresh();
  setTimeout(open, AGAIN_MS);
}

if (document.body.dataset.streamAt) {
  open();
  setInterval(refresh, POLL_MS);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    void refresh();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
}
document.addEventListener("quire:refresh", () => void refresh());
document.addEventListener("submit", (event) => void act(event));
