// The administration client of @azure/service-bus, driven by lines of JSON: each command calls one of its methods.
// A date among the arguments is written {"date": text}.

const { ServiceBusAdministrationClient } = require("@azure/service-bus")
const { serve } = require("./lines.js")

let client

const withDates = (_key, value) => (value && typeof value === "object" && "date" in value ? new Date(value.date) : value)

serve({
  connect: async ({ connection_string }) => {
    client = new ServiceBusAdministrationClient(connection_string)
  },

  call: ({ method, arguments: given = [] }) => client[method](...JSON.parse(JSON.stringify(given), withDates)),

  list: async ({ method, arguments: given = [], page }) => {
    const pages = []
    for await (const one of client[method](...given).byPage({ maxPageSize: page })) pages.push([...one])
    return pages
  },

  fail: async ({ method, arguments: given = [] }) => {
    try {
      await client[method](...given)
    } catch (error) {
      return { code: error.code, status: error.statusCode, message: error.message }
    }
    throw new Error(`${method} did not fail`)
  },
})
