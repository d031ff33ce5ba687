// Measures requests a second, latency and streams through the hub, and directly, in turns:
//	.ci/fleet bench
'use strict'
const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const http = require('node:http')
const https = require('node:https')
const { Hub, Drone, users, sleep, ca } = require('./world.js')

const drones = ['rosie', 'bob', 'amy'].map((name, i) => new Drone(name, '10.9.0.1' + (i + 1), 'sim'))

// wrk returns what that many clients get from a URL in 5 s.
function wrk(clients, url) {
	const headers = Object.entries(users.ann.headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`])
	const args = ['-t', '1', '-c', clients, '-d', '5', '--latency', ...headers, url]
	const out = execFileSync('wrk', args, { encoding: 'utf8' })
	const of = pattern => out.match(pattern)?.[1]
	const failed = of(/Non-2xx.*: (\d+)/) ?? 0
	return JSON.stringify({ rate: of(/Requests\/sec: +(\S+)/), median: of(/50% +(\S+)/), p99: of(/99% +(\S+)/), failed })
}

// streams opens 16 streams of each drone for 10 s, and counts their events.
async function streams(protocol, base) {
	const all = []
	for (let i = 0; i < 48; i++) {
		const { name, url } = drones[i % 3]
		const one = { events: 0, last: 0, gap: 0 }
		all.push(one)
		const options = { ca, agent: false, headers: { ...users.ann.headers, Accept: 'text/event-stream' } }
		const heard = data => {
			if (!String(data).includes('event: status')) return
			const now = performance.now()
			one.events++
			if (one.last) one.gap = Math.max(one.gap, now - one.last)
			one.last = now
		}
		const at = base ? `${base}/api/drone/${name}/status` : url + '/api/drone/status'
		one.r = protocol.get(at, options, answer => answer.on('data', heard)).on('error', () => {})
	}
	await sleep(1000)
	for (const one of all) Object.assign(one, { events: 0, gap: 0 })
	await sleep(10_000)
	for (const one of all) one.r.destroy()
	const rate = all.reduce((n, one) => n + one.events, 0) / all.length / 10
	const gap = Math.max(...all.map(one => one.gap))
	return `${all.length} streams: ${rate.toFixed(1)} events a second each, longest gap ${gap.toFixed(0)} ms`
}

// ticks is the processor time of the hub's processes, in hundredths of a second.
function ticks(hub) {
	const of = pid => {
		const [user, system] = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13)
		return Number(user) + Number(system)
	}
	const children = fs.readFileSync(`/proc/${hub.process.pid}/task/${hub.process.pid}/children`, 'utf8').trim().split(' ')
	return children.reduce((n, pid) => n + of(pid), 0)
}

async function main() {
	await Promise.all(drones.map(d => d.start()))
	const hub = await Hub.start()
	await drones[0].until('it can be armed', s => s.armable)
	for (let turn = 0; turn < 4; turn++) {
		for (const clients of [1, 8]) {
			console.log(clients, 'direct', wrk(clients, drones[0].url + '/api/drone/status'))
			console.log(clients, 'hub   ', wrk(clients, hub.url + '/api/drone/rosie/status'))
		}
	}
	// Events come when a value changes, and in flight one always does.
	await Promise.all(drones.map(d => d.ask('POST', '/takeoff', '{"altitude":120}')))
	console.log('direct', await streams(http))
	const before = ticks(hub)
	console.log('hub   ', await streams(https, hub.url), `${((ticks(hub) - before) / 11).toFixed(1)} % of a core`)
	await hub.end()
	process.exit()
}

main()
