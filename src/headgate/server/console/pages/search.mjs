// A search for messages in other words: a clause of a filter, a command, a program. `server` is `streamAddress()`.

/**
 * The clause that selects a property's value, in the languages that take it; null for values without a literal. `type` is
 * that of AMQP: integers that JavaScript's numbers do not hold come as texts.
 */
export function clauseOf(section, name, value, type) {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(section === "properties" ? name.replaceAll("-", "_") : name)) return null
  const field = section === "properties" ? `properties.${name.replaceAll("-", "_")}` : section === "application_properties" ? name : null
  if (field === null) return null
  if (/^u?long$/.test(type) && /^-?\d+$/.test(value)) return `${field} = ${value}`
  if (typeof value === "string") return `${field} = '${value.replaceAll("'", "''")}'`
  if (typeof value === "number") return `${field} = ${value}`
  if (typeof value === "boolean") return `${field} = ${value ? "TRUE" : "FALSE"}`
  return null
}

/** `headgate tail` for a search. */
export function asCommand(server, stream, { from, filter, language, filterValues, isFollowed }) {
  const words = ["headgate tail", quoted(stream), "--server", server, "--from", quoted(isFollowed ? "next" : from)]
  if (filter) words.push("--filter", quoted(filter), "--dialect", language)
  for (const value of filterValues) words.push("--filter-value", quoted(value))
  if (isFollowed) words.push("--follow")
  return words.join(" ")
}

/** A word of a shell: what looks like an option or has signs in it is quoted. */
function quoted(text) {
  return /^[A-Za-z0-9_.:/@][A-Za-z0-9_.:/@+=-]*$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** A program for a search, with Headgate's client. */
export function asPython(server, stream, { from, filter, language, filterValues, isFollowed }) {
  const start = isFollowed ? "next" : from
  const given = [python(stream), `start=${/^\d+$/.test(start) ? start : python(start)}`]
  if (filterValues.length) given.push(`filter_values=[${filterValues.map(python).join(", ")}]`)
  if (filter) given.push(`filter=${python(filter)}`, `dialect=${python(language)}`)
  return `from headgate.client import Client

with Client.connect(${python(server)}) as client:
    for offset, message in client.consumer(
        ${given.join(",\n        ")},
    ):
        print(offset, message)
`
}

/** A string of Python. JSON's escapes are Python's, but for letters beyond the first plane, which are written as they are. */
const python = (text) => JSON.stringify(text)
