// Pan and zoom of the drawing: drag, wheel, pinch, keys. It moves one group and draws nothing anew.
//
// To paint a thousand boxes takes 30 ms and more. So a large drawing is moved as a picture, which costs almost nothing,
// and painted sharp when it has come to rest.
const LARGE_NODES = 300, SETTLE_MS = 120;

export class Camera {
  constructor(svg, group) {
    this.svg = svg; this.group = group;
    this.x = 0; this.y = 0; this.k = 1; this.size = null;
    this.painted = { x: 0, y: 0, k: 1 }; this.timer = 0;
    this.pointers = new Map();
    svg.addEventListener("wheel", event => { event.preventDefault(); this.zoomAt(event, Math.exp(-event.deltaY * 0.0015)); }, { passive: false });
    svg.addEventListener("pointerdown", event => { this.pointers.set(event.pointerId, event); this.moved = 0; });
    addEventListener("pointermove", this.move = event => this.onMove(event));
    addEventListener("pointerup", this.up = event => this.pointers.delete(event.pointerId));
    addEventListener("pointercancel", this.up);
    svg.addEventListener("keydown", event => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (step && event.target === svg) { event.preventDefault(); this.x += step[0]; this.y += step[1]; this.apply(); }
      if (event.key === "+" || event.key === "=") this.zoom(1.25);
      if (event.key === "-") this.zoom(0.8);
      if (event.key === "0") this.fit();
    });
  }
  close() { clearTimeout(this.timer); removeEventListener("pointermove", this.move); removeEventListener("pointerup", this.up); removeEventListener("pointercancel", this.up); }
  onMove(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers.values()].filter(p => p.pointerId !== event.pointerId);
      const far = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      this.zoomAt({ clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 }, far(event, other) / (far(last, other) || 1));
    } else {
      const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
      this.moved += Math.abs(dx) + Math.abs(dy);
      this.x += dx; this.y += dy;
      this.apply();
    }
    this.pointers.set(event.pointerId, event);
  }
  get isDrag() { return this.moved > 5; }
  zoomAt(event, factor) {
    const box = this.svg.parentNode.getBoundingClientRect(), k = Math.min(3, Math.max(0.04, this.k * factor));
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    this.x = px - ((px - this.x) * k) / this.k;
    this.y = py - ((py - this.y) * k) / this.k;
    this.k = k;
    this.apply();
  }
  zoom(factor) {
    const box = this.svg.parentNode.getBoundingClientRect();
    this.zoomAt({ clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }, factor);
  }
  fit(size = this.size) {
    if (!size) return;
    this.size = size;
    const box = this.svg.parentNode.getBoundingClientRect(), margin = 24;
    const isNarrow = box.width < 600; // on a phone the whole is unreadable: fit the height, begin at the left
    this.k = Math.min(1.25, isNarrow ? 0.8 : Math.min((box.width - 2 * margin) / size.width, (box.height - 2 * margin) / size.height));
    this.x = isNarrow ? margin : (box.width - size.width * this.k) / 2;
    this.y = Math.max(margin, (box.height - size.height * this.k) / 2);
    this.paint();
  }
  show(x, y) {
    const box = this.svg.parentNode.getBoundingClientRect();
    this.k = Math.max(this.k, 0.7);
    this.x = box.width / 2 - x * this.k; this.y = box.height / 2 - y * this.k;
    this.paint();
  }
  apply() {
    if (!(this.size?.nodes.length > LARGE_NODES)) { this.paint(); return; }
    const { x, y, k } = this.painted, grown = this.k / k;
    this.svg.style.transform = `translate(${(this.x - x * grown).toFixed(1)}px, ${(this.y - y * grown).toFixed(1)}px) scale(${grown.toFixed(4)})`;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.paint(), SETTLE_MS);
  }
  paint() {
    clearTimeout(this.timer);
    this.painted = { x: this.x, y: this.y, k: this.k };
    this.svg.style.transform = "";
    this.group.setAttribute("transform", `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.k.toFixed(4)})`);
    this.svg.classList.toggle("far", this.k < 0.35);
  }
}
