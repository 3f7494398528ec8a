// Numbers, sizes and times as people read them.

const NARROW = "\u00a0"
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 })

/** A number with a unit: "12.4 M". Numbers below 100,000 are shown in full: "12,345". */
export function count(number) {
  if (number === null || number === undefined) return "–"
  if (Math.abs(number) < 100_000) return Number.isInteger(number) ? grouped.format(number) : decimals(number)
  return scaled(number, 1000, ["k", "M", "G", "T"])
}

/** A number in full: "12,345,678". For offsets, which people compare and copy. */
export function exact(number) {
  return number === null || number === undefined ? "–" : grouped.format(number)
}

/** "12.4 M messages", "1 message". */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)}${NARROW}${number === 1 ? noun : plural}`
}

/** A size in decimal units: "1.2 MB". */
export function bytes(size) {
  if (size === null || size === undefined) return "–"
  if (Math.abs(size) < 1000) return `${Math.round(size)}${NARROW}B`
  return scaled(size, 1000, ["kB", "MB", "GB", "TB", "PB"])
}

/** "120/s". */
export function rate(perSecond) {
  return perSecond === null || perSecond === undefined ? "–" : `${count(perSecond)}/s`
}

/** "1.2 MB/s". */
export function byteRate(perSecond) {
  return perSecond === null || perSecond === undefined ? "–" : `${bytes(perSecond)}/s`
}

/** A share of one: "12.4 %". */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–"
  const value = share * 100
  return `${value !== 0 && Math.abs(value) < 10 ? trimmed(value.toPrecision(2)) : value.toFixed(0)}${NARROW}%`
}

/** How long: "350 ms", "1.2 s", "3 min", "2 h 5 min", "4 days". */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–"
  const seconds = milliseconds / 1000
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)}${NARROW}µs`
  if (seconds < 1) return `${Math.round(milliseconds)}${NARROW}ms`
  if (seconds < 60) return `${seconds < 10 ? trimmed(seconds.toFixed(1)) : Math.round(seconds)}${NARROW}s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes}${NARROW}min`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return minutes % 60 ? `${hours}${NARROW}h ${minutes % 60}${NARROW}min` : `${hours}${NARROW}h`
  return `${Math.round(hours / 24)}${NARROW}days`
}

/** How long ago: "just now", "3 min ago". */
export function ago(milliseconds, now = Date.now()) {
  const passed = now - milliseconds
  if (passed < -1000) return `in ${duration(-passed)}`
  return passed < 1000 ? "just now" : `${duration(passed)} ago`
}

/** A moment in the browser's time zone: "14:02:11.123" today, with the date before it on other days. */
export function moment(milliseconds, { date = "other days" } = {}) {
  const at = new Date(milliseconds)
  if (Number.isNaN(at.getTime())) return `${milliseconds}${NARROW}ms`
  const two = (number) => String(number).padStart(2, "0")
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  const isToday = at.toDateString() === new Date().toDateString()
  return date === "never" || (isToday && date !== "always") ? clock : `${day} ${clock}`
}

/** A value of any kind in one line: lists with commas, mappings as `name: value`. */
export function plain(value) {
  if (value === null || value === undefined) return "–"
  if (typeof value === "boolean") return value ? "yes" : "no"
  if (Array.isArray(value)) return value.map(plain).join(", ")
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name}: ${plain(one)}`).join(", ")
  return String(value)
}

function scaled(number, step, units) {
  let value = number
  for (const unit of units) {
    value /= step
    if (Math.abs(value) < step * 0.9995 || unit === units.at(-1)) {
      return `${trimmed(value.toFixed(Math.abs(value) < 99.95 ? 1 : 0))}${NARROW}${unit}`
    }
  }
}

function decimals(number) {
  return Math.abs(number) < 10 ? trimmed(number.toPrecision(2)) : grouped.format(number)
}

/** Without zeros behind the point. */
function trimmed(text) {
  return text.includes("e") ? String(Number(text)) : text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")
}
