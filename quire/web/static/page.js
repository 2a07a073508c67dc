// @ts-check
/* Select all, `/` to focus the search field, and relative times that stay current. */

document.documentElement.classList.add("scripted");

document.addEventListener("change", (event) => {
  const all = event.target;
  if (!(all instanceof HTMLInputElement) || !all.dataset.all) return;
  const boxes = document.querySelectorAll(`input[type=checkbox][name="${all.dataset.all}"]`);
  for (const box of boxes) if (box instanceof HTMLInputElement) box.checked = all.checked;
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector("[data-find]");
  if (!(field instanceof HTMLInputElement)) return;
  event.preventDefault();
  field.focus();
  field.select();
});

/** @type {[number, string][]} */
const UNITS = [[31_557_600, "years"], [86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function worded(/** @type {number} */ off) {
  const unit = Math.abs(off) >= 2 && UNITS.find(([size]) => Math.abs(off) >= size);
  if (!unit) return "now";
  const count = String(Math.floor(Math.abs(off) / unit[0])).replace(/\B(?=(\d{3})+$)/g, ",");
  return off > 0 ? `in ${count} ${unit[1]}` : `${count} ${unit[1]} ago`;
}

setInterval(() => {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.getAttribute("datetime") ?? "");
    const text = worded((at - Date.now()) / 1000);
    if (at && time.textContent !== text) time.textContent = text;
  }
}, 1000);
