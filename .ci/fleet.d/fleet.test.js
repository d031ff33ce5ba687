// Each point on fleet.conf as it is, and on broken ones that the point must catch.
'use strict'
const { describe, it, before, after } = require('node:test')
const { Hub, Drone, fake, example, assert } = require('./world.js')
const { breaks, without, lengthOf } = require('./breaks.js')

const drones = {
	rosie: new Drone('rosie', '10.9.0.11', 'sim'),
	bob: new Drone('bob', '10.9.0.12', 'sim:ardupilot'),
	amy: new Drone('amy', '10.9.0.13', 'sim'),
	dora: new Drone('dora', '10.9.0.17', 'sim'), // leaves the network
}
const points = { ...require('./points.js').points(drones), ...require('./page.js')(drones) }

// These wait for a time-out, or for a flight. They are tested beside the others.
const slow = new Set([
	'a body that pauses for 10 s is dropped',
	'a wait is not cut',
	'a drone that vanishes ends a wait',
	'examples/flight.py flies with a key',
	'Chromium: one login, and the page flies; its drone leaves the network and comes back',
])
const isSlow = point => slow.has(point)
const isQuick = point => !slow.has(point)

before(async () => {
	await fake.start()
	await Promise.all(Object.values(drones).map(d => d.start()))
})

after(async () => {
	fake.end()
	await Promise.all(Object.values(drones).map(d => d.kill()))
})

// holds tests a point on fleet.conf as it is.
async function holds(point) {
	const hub = await Hub.start()
	try {
		await points[point](hub)
	} catch (e) {
		console.error(`-- nginx, ${point}:\n${hub.log()}`)
		throw e
	} finally { await hub.end() }
}

// catches tests that a point fails on a broken fleet.conf, and says why.
async function catches(point, edit, says) {
	const hub = await Hub.start(edit)
	try {
		await assert.rejects(points[point](hub), e => {
			assert.match(e.message, says)
			return true
		})
	} finally { await hub.end() }
}

describe('fleet.conf', { concurrency: true }, () => {
	for (const [kind, of, concurrency] of [['a point', isQuick, 1], ['a point that takes its time', isSlow, true]]) {
		describe(kind, { concurrency }, () => {
			for (const point of Object.keys(points).filter(of)) it(point, () => holds(point))
		})
	}
	for (const [kind, of, concurrency] of [['a break', isQuick, 2], ['a break that takes its time', isSlow, true]]) {
		describe(kind, { concurrency }, () => {
			for (const point of Object.keys(breaks).filter(of)) {
				for (const [what, ...how] of breaks[point]) {
					const [edit, says] = how.length === 2 ? how : [without(what), how[0]]
					it(`${what}: ${point}`, () => catches(point, edit, says))
				}
			}
		})
	}

	it('a reload that cuts what is old is noticed', async () => {
		const hub = await Hub.start(undefined, conf => 'worker_shutdown_timeout 1s;\n' + conf)
		const point = Object.keys(points).find(p => p.startsWith('a reload'))
		try {
			await assert.rejects(points[point](hub), /socket hang up|ECONNRESET/)
		} finally { await hub.end() }
	})

	it('without any other line nginx does not start', async () => {
		const lines = example.split('\n')
		const tested = Object.values(breaks).flat().filter(b => b.length === 2).map(b => b[0])
		const ours = /ghost|amy|dora|fake|closed|silent|cleo|zoe/ // the test's own lines
		await Promise.all(lines.map(async (line, i) => {
			const text = line.trim()
			if (/^(#|}|$)/.test(text) || ours.test(text) || tested.some(t => text.startsWith(t))) return
			const rest = [...lines.slice(0, i), ...lines.slice(i + lengthOf(lines, i))]
			const started = Hub.start(() => rest.join('\n')).then(h => h.end())
			await assert.rejects(started, /nginx does not start|nginx listens/, text)
		}))
	})
})
