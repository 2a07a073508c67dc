// @ts-check
/* A block or cell under the pointer is highlighted on the picture of the page, and the other way
   round. Its box is `data-box`: x, y, width and height in points. */

const picture = document.querySelector(".sheet svg");
const mark = picture?.querySelector(".lit");
/** @type {{ node: Element, box: number[] }[]} */
const known = [...document.querySelectorAll(".blocks [data-box]")].map((node) => ({
  node,
  box: (node.getAttribute("data-box") ?? "").split(" ").map(Number),
}));

function outline(/** @type {number[]} */ [x, y, width, height]) {
  for (const [name, value] of Object.entries({ x, y, width, height }))
    mark?.setAttribute(name, String(value));
}

for (const { node, box } of known) {
  node.addEventListener("pointerenter", () => outline(box));
  node.addEventListener("pointerleave", () => outline([0, 0, 0, 0]));
}

/** The smallest box at a place, so that a cell goes before its table. */
function at(/** @type {number} */ x, /** @type {number} */ y) {
  return known
    .filter(({ box: [left, top, wide, high] }) =>
      x >= left && x <= left + wide && y >= top && y <= top + high)
    .sort((a, b) => a.box[2] * a.box[3] - b.box[2] * b.box[3])[0];
}

/** @type {Element | undefined} */
let lit;
function show(/** @type {{ node: Element, box: number[] } | undefined} */ found) {
  if (found?.node === lit) return;
  lit?.classList.remove("lit");
  lit = found?.node;
  lit?.classList.add("lit");
  outline(found?.box ?? [0, 0, 0, 0]);
}

if (picture instanceof SVGSVGElement) {
  const place = (/** @type {MouseEvent} */ event) => {
    const area = picture.getBoundingClientRect();
    const { width, height } = picture.viewBox.baseVal;
    return at(
      ((event.clientX - area.left) / area.width) * width,
      ((event.clientY - area.top) / area.height) * height,
    );
  };
  picture.addEventListener("pointermove", (event) => show(place(event)));
  picture.addEventListener("pointerleave", () => show(undefined));
  picture.addEventListener("click", (event) =>
    place(event)?.node.scrollIntoView({ block: "center", behavior: "smooth" }));
}
