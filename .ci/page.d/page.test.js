// Tests the page on a fake server, whose status and answers the test chooses.
'use strict'
const { describe, it } = require('node:test')
const assert = require('node:assert')
const fs = require('node:fs')
const { isDeepStrictEqual } = require('node:util')
const { Browser, until, sleep } = require('./browser.js')
const { stopped } = require('./world.js')
const { real, status, world, opened, run, runLive, nulled } = require('./pages.js')

describe('status', () => {
	it('what is unknown is a dash', async t => {
		const groups = Object.fromEntries(Object.entries(real).filter(([, v]) => v && typeof v === 'object' && !Array.isArray(v)).map(([key, v]) => [key, nulled(v)]))
		for (const unknown of [nulled(real), { ...nulled(real), ...groups }, {}]) {
			const { page } = await world(t, unknown)
			assert.strictEqual(await page.text('doing'), 'Waiting for a vehicle')
			assert.strictEqual(await page.text('by'), '–')
			assert.deepStrictEqual(await page.eval(() => [...document.querySelectorAll('dl dd:nth-of-type(1)')].map(e => e.textContent)), Array(12).fill('–'))
			assert.doesNotMatch(await page.eval(() => document.body.innerText), /null|undefined|NaN|\[object/)
		}
	})

	it('what is stale is grey with its age', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		const old = () => page.eval(() => [...document.querySelectorAll('dl .old dt')].map(e => e.textContent))
		const below = id => page.eval(id => document.getElementById(id).nextElementSibling.textContent, id)
		await shown(status({ position: { ...real.position, age: 12.4 } }))
		assert.deepStrictEqual(await old(), ['Altitude', 'To home', 'Heading', 'To target'])
		assert.strictEqual(await below('fact-altitude'), '12\u00a0s old')
		assert.ok(await page.eval(() => document.getElementById('drone').classList.contains('old')))
		await shown(status({ battery: { ...real.battery, age: 300 } }))
		assert.deepStrictEqual(await old(), ['Battery', 'Current'])
		assert.strictEqual(await below('fact-battery'), '5\u00a0min old')
		// The numbers also age while no event comes.
		await shown(status({ gps: { ...real.gps, age: 2.9 } }))
		await run(page, 600)
		assert.strictEqual(await below('fact-gps'), '4\u00a0s old')
	})

	it('armable or why not, failsafe and silence are in plain words', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		for (const [s, id, text] of [
			[{ armed: false, armable: true, unhealthy: ['rc_receiver'] }, 'ready', 'can take off · GPS 3D, 12 satellites'],
			[{ armed: false, armable: false, unhealthy: ['gps', '3d_mag', 'xy_new_thing'] }, 'ready', "can't be armed, unhealthy: GPS, compass, xy new thing · GPS 3D, 12 satellites"],
			[{ armed: false, armable: false, unhealthy: [] }, 'ready', "can't be armed: press Take off, and the autopilot says why · GPS 3D, 12 satellites"],
			[{ armed: true, armable: false }, 'ready', ''],
			[{ input: { active: true, expires_in: 0.31, by: 'client', from: '192.168.1.23', yours: false } }, 'by', 'another client, 192.168.1.23'],
			[{ input: { active: false, expires_in: null, by: 'receiver', from: null, yours: false } }, 'by', 'the receiver'],
			[{ input: { active: false, expires_in: null, by: 'mavrest', from: null, yours: false } }, 'by', 'mavrest'],
			[{ input: { active: false, expires_in: null, by: null, from: null, yours: false } }, 'by', 'off, press Position'],
			[{ mode: 'position', input: { active: false, expires_in: null, by: null, from: null, yours: false } }, 'by', 'nobody, move one'],
			[{ mode: 'manual', armed: false, input: { active: false, expires_in: null, by: null, from: null, yours: false } }, 'by', 'off, not armed'],
			[{ gps: { ...real.gps, fix: 'rtk_fixed' } }, 'fact-gps', 'RTK fixed'],
			[{ gps: { ...real.gps, fix: '3d' } }, 'fact-gps', '3D'],
			[{ gps: { ...real.gps, fix: 'no_gps' } }, 'fact-gps', 'no GPS'],
			[{ velocity: { ...real.velocity, climb: -0.04 } }, 'fact-climb', '0.0\u00a0m/s'],
			[{ velocity: { ...real.velocity, climb: -0.06 } }, 'fact-climb', '-0.1\u00a0m/s'],
			[{ online: false, link: { ...real.link, error: '-device /dev/serial0: there is no such device' } }, 'banner', '-device /dev/serial0: there is no such device'],
			[{ online: false, link: { ...real.link, error: 'no autopilot was heard yet on sim', heartbeat_age: null } }, 'banner', 'no autopilot was heard yet on sim'],
			[{}, 'banner', ''],
		]) {
			await shown(status(s))
			assert.strictEqual(await page.text(id), text)
		}
		await shown(status({ online: false, link: { ...real.link, error: 'the autopilot is offline: no heartbeat for 7 s', heartbeat_age: 7 } }))
		assert.match(await page.text('banner'), /^The autopilot has been silent since \d\d:\d\d:\d\d\.$/)
		assert.ok(await page.eval(() => document.getElementById('failsafe').offsetWidth === 0))
		await shown(status({ failsafe: true }))
		assert.ok(await page.eval(() => document.getElementById('failsafe').offsetWidth > 0))
	})

	it('names and texts that contain HTML are text', async t => {
		const evil = '<img src=x onerror="window.hit = 1"><script>hit = 1</script><b>&amp;'
		const { page, shown, fake } = await world(t, status(), { scripts: [stopped] })
		await shown(status({
			version: real.version, vehicle_mode: evil, mode: evil, landed_state: evil, armed: false, armable: false, unhealthy: [evil],
			messages: [{ severity: 'critical', text: evil, age: 1 }, { severity: evil, text: 'x', age: 1 }], online: false,
			gps: { ...real.gps, fix: evil }, input: { active: true, expires_in: 1, by: evil },
			vehicle: { ...real.vehicle, version: evil, type: evil }, link: { ...real.link, device: evil, error: evil },
		}))
		fake.answer = (path, body, r) => r.writeHead(409).end(JSON.stringify({ error: evil, code: 'refused' }))
		await page.click('#hold')
		await page.shows('answer', 'Hold: <img')
		for (const id of ['fact-mode', 'fact-gps', 'banner']) assert.strictEqual((await page.text(id)).toLowerCase(), evil.toLowerCase())
		assert.ok(await page.eval(evil => document.querySelector('#messages li:nth-child(2)').textContent.startsWith(evil), evil))
		assert.deepStrictEqual(await page.eval(() => [document.querySelectorAll('img, b b, main script, li script').length, window.hit ?? null]), [0, null])
	})

	it('messages are the newest first with their ages, and spoken once', async t => {
		const { page, shown } = await world(t, status({ messages: [] }), { scripts: [stopped] })
		const list = Array.from({ length: 20 }, (_, i) => ({ severity: i % 2 ? 'warning' : 'info', text: 'text ' + i, age: 40 - i }))
		const spoken = () => page.eval(() => [...document.querySelectorAll('#spoken p')].map(p => p.textContent))
		await shown(status({ messages: list.slice(0, 3) }))
		assert.deepStrictEqual(await spoken(), ['text 1'])
		await shown(status({ messages: list })) // one after the other: no text replaces another
		assert.deepStrictEqual(await spoken(), [1, 3, 5, 7, 9, 11, 13, 15, 17, 19].map(i => 'text ' + i))
		// Two messages come and the two oldest go. Both are spoken, though their texts were shown before.
		const added = [{ severity: 'error', text: 'text 18', age: 0 }, list[19]]
		await shown(status({ messages: [...list.slice(2), ...added] }))
		assert.deepStrictEqual((await spoken()).slice(-2), added.map(m => m.text))
		await shown(status({ messages: list }))
		const shownList = await page.eval(() => [...document.querySelectorAll('#messages li')].map(li => li.textContent))
		assert.strictEqual(shownList.length, 20)
		assert.match(shownList[0], /^text 19 · warning, \d+\ss$/)
		assert.match(shownList[19], /^text 0 · info, 4\d\ss$/)
		// A failsafe interrupts.
		await shown(status({ messages: list, failsafe: true }))
		assert.deepStrictEqual(await page.eval(() => ['spoken', 'alarm'].map(id => [document.getElementById(id).ariaLive, /Failsafe/.test(document.getElementById(id).textContent)])), [['polite', false], ['assertive', true]])
	})
})

describe('the stream', () => {
	it('has a banner within 2 s of silence, which says since when, and comes back by itself', async t => {
		const { page, fake, shown } = await world(t, status(), { scripts: [stopped] })
		await shown(status())
		fake.mute = true
		await run(page, 1000)
		assert.strictEqual(await page.text('banner'), '')
		const since = await page.eval(() => new Date(Date.now() - 1000).toTimeString().slice(0, 8))
		await run(page, 1000)
		assert.strictEqual(await page.text('banner'), `No contact with mavrest since ${since}. What you see is old.`)
		assert.strictEqual(await page.eval(() => document.querySelectorAll('dl .old').length), 12)
		assert.match(await page.eval(() => document.title), /^no contact/)
		await run(page, 10000)
		assert.strictEqual(await page.text('banner'), `No contact with mavrest since ${since}. What you see is old.`)
		assert.strictEqual(await page.eval(() => document.getElementById('fact-altitude').nextElementSibling.textContent), '12\u00a0s old')
		// The page does not notice a cut cable: it opens the stream again, as the only one.
		await until('a stream', () => fake.streams.size === 1)
		await shown(status())
		assert.strictEqual(await page.text('banner'), '')
		await run(page, 100)
		assert.strictEqual(await page.eval(() => document.querySelectorAll('dl .old').length), 0)
	})

	it('has a banner at once when the connection breaks', async t => {
		const { page, fake } = await world(t, status(), { scripts: [stopped] })
		for (const r of fake.streams) r.destroy()
		await page.shows('banner', '^No contact with mavrest since') // although the page's clock is stopped
		await page.shows('banner', '^$')
	})

	it('comes back after an error answer, which ends an EventSource', async t => {
		const { page, fake } = await world(t)
		const serve = fake.serve
		fake.serve = (q, r) => r.writeHead(503).end()
		for (const r of fake.streams) r.destroy()
		await page.until('the browser gave it up', () => stream.readyState === EventSource.CLOSED)
		await page.shows('banner', '^No contact')
		fake.serve = serve
		await page.shows('banner', '^$')
	})

	it('shows no old number as a live one after a sleep that one clock did not count', async t => {
		const { page, fake, shown } = await world(t, status(), { scripts: [stopped, 'const d = Date.now; window.slept = 0; Date.now = () => d() + slept'] })
		await shown(status())
		fake.mute = true
		await page.eval(() => { window.slept = 60000; window.run(100) })
		assert.match(await page.text('banner'), /^No contact/)
		assert.strictEqual(await page.eval(() => document.getElementById('fact-speed').nextElementSibling.textContent), '60\u00a0s old')
	})

	it('leaves memory and nodes flat in ten minutes at full rate', async t => {
		// Each event lets a tenth of a second pass, as in ten minutes at ten a second.
		const faster = `{
			const real = EventSource.prototype.addEventListener
			EventSource.prototype.addEventListener = function (name, f) {
				real.call(this, name, e => { window.run(100); window.events = (window.events ?? 0) + 1; f(e) })
			}
		}`
		const { page, fake } = await world(t, status(), { scripts: [stopped, faster] })
		const r = [...fake.streams][0]
		const flown = async (from, to) => {
			for (let i = from; i < to; i++) {
				const a = i / 50, s = status({
					position: { ...real.position, lat: real.home.lat + 0.003 * Math.sin(a), lon: real.home.lon + 0.004 * Math.cos(a * 1.1), altitude: 20 + 15 * Math.sin(a / 3), heading: i % 360, age: 0.05 },
					velocity: { ...real.velocity, ground_speed: i % 17, age: 0.05 }, target: { lat: real.home.lat, lon: real.home.lon, altitude: i % 40, distance: i % 90 },
					messages: Array.from({ length: Math.min(20, i) }, (_, k) => ({ severity: 'warning', text: 'message ' + (Math.floor(i / 20) + k), age: k })),
					mode: i % 400 < 200 ? 'hold' : 'position', online: i % 700 > 9, failsafe: i % 300 < 20,
				})
				if (!r.write(`event: status\ndata: ${JSON.stringify(s)}\n\n`)) await new Promise(done => r.once('drain', done))
			}
			await page.until(`event ${to}`, to => window.events >= to, [to], 60)
		}
		const size = async () => {
			for (let i = 0; i < 2; i++) await page.send('HeapProfiler.collectGarbage')
			const { nodes, jsEventListeners } = await page.send('Memory.getDOMCounters')
			return { nodes, jsEventListeners, heap: (await page.send('Runtime.getHeapUsage')).usedSize }
		}
		await flown(0, 3000)
		const half = await size()
		await flown(3000, 6000)
		const whole = await size()
		t.diagnostic(JSON.stringify({ half, whole }))
		assert.ok(whole.nodes <= half.nodes + 10, 'nodes')
		assert.ok(whole.jsEventListeners <= half.jsEventListeners + 2, 'listeners')
		assert.ok(whole.heap < half.heap * 1.1 + 1e5, 'heap')
		assert.ok(await page.eval(() => track.length <= 600 && heights.length <= 245 && heights.length > 230))
	})

	it('of another version reloads the page once, and not under somebody\'s thumbs', async t => {
		const { page, fake, shown } = await world(t)
		assert.strictEqual(fake.pages, 1)
		const right = await page.spot('#right')
		await page.mouse('mousePressed', right)
		await until('sticks', () => fake.named('input').length > 0)
		await shown(status({ version: 'v9.9.9' }))
		await shown(status({ version: 'v9.9.9', input: { active: true, expires_in: 0.3, by: 'client' } }))
		await page.mouse('mouseReleased', right)
		await sleep(500)
		assert.strictEqual(fake.pages, 1)
		fake.say(status({ version: 'v9.9.9' }))
		await until('the page is loaded again', () => fake.pages === 2)
		await page.until('a status', () => document.getElementById('link').textContent !== '')
		await shown(status({ version: 'v9.9.9' }))
		assert.strictEqual(fake.pages, 2) // this server's page stays the old one
	})
})

describe('commands', () => {
	it('each button sends what it says', async t => {
		const { page, fake, shown } = await world(t)
		const rows = [
			['#hold', 'mode', { mode: 'hold' }], ['#land', 'land', {}], ['#disarm', 'mode', { arm: false }],
			['#return', 'mode', { mode: 'rtl' }], ['[data-mode=rtgs]', 'mode', { mode: 'rtgs' }],
			['[data-mode=position]', 'mode', { mode: 'position' }], ['[data-mode=altitude]', 'mode', { mode: 'altitude' }, true],
			['#takeoff', 'takeoff', { altitude: 12.5 }, true], ['#arm', 'mode', { arm: true }, true], ['[data-mode=manual]', 'mode', { mode: 'manual' }, true],
		]
		const place = { lat: Number((real.home.lat + 0.001).toFixed(7)), lon: Number(real.home.lon.toFixed(7)) }
		rows.push(['#goto', 'goto', { ...place, altitude: 20.5, speed: 5 }], ['#land-there', 'land', place, true])
		await opened(page)
		const fill = async fields => { for (const [field, text] of fields) await page.type(field, String(text)) }
		const there = [['#lat', place.lat], ['#lon', String(place.lon).replace('.', ',')], ['#altitude', ' 20,5 '], ['#speed', '5']]
		await shown(status({ in_air: false }))
		await fill([['#up', '12,5']])
		for (const [i, [button, path, body, pressed]] of rows.entries()) {
			const sent = () => until(button, () => fake.posts.length > i)
			if (button === '#goto') await shown(status({ done: true, position: { ...real.position, altitude: 10 } }))
			if (button === '#goto' || button === '#land-there') await fill(there)
			if (pressed) await page.press(button, sent)
			else await page.click(button)
			await sent()
			assert.deepStrictEqual([fake.posts[i].path, fake.posts[i].body], [path, { ...body, wait: 600 }])
			await page.shows('answer', 'done after 2 s$')
		}
		// The page forgets a place after the flight there, and leaves out an empty field.
		assert.deepStrictEqual(await page.eval(() => ['lat', 'lon'].map(id => document.getElementById(id).value)), ['', ''])
		await fill([['#lat', place.lat], ['#lon', place.lon]])
		await page.eval(() => { for (const id of ['altitude', 'speed']) document.getElementById(id).value = '' })
		await page.click('#goto-numbers')
		await until('goto', () => fake.posts.length === rows.length + 1)
		assert.deepStrictEqual(fake.posts.at(-1).body, { ...place, wait: 600 })
	})

	it('arming and takeoff want a press of one second', async t => {
		const { page, fake } = await world(t, status({ in_air: false }), { scripts: [stopped] })
		await opened(page)
		for (const button of ['#takeoff', '#arm']) {
			const n = fake.posts.length
			await page.click(button)
			await run(page, 5000)
			const at = await page.spot(button)
			await page.mouse('mousePressed', at)
			await run(page, 900)
			assert.ok(await page.eval(button => document.querySelector(button).classList.contains('pressed'), button))
			await page.mouse('mouseReleased', at)
			await run(page, 5000)
			await page.mouse('mousePressed', at)
			await run(page, 900)
			await page.mouse('mouseMoved', { x: at.x, y: at.y + 100 }) // off the button
			await run(page, 5000)
			await page.mouse('mouseReleased', { x: at.x, y: at.y + 100 })
			await sleep(300) // for a request that must not come
			assert.strictEqual(fake.posts.length, n)
			await page.mouse('mouseMoved', at)
			await page.mouse('mousePressed', at)
			await run(page, 1000)
			await until('the command', () => fake.posts.length === n + 1)
			await page.mouse('mouseReleased', at)
			await page.shows('answer', 'done') // before the page gives up waiting for the answer
			await run(page, 5000)
			assert.strictEqual(fake.posts.length, n + 1)
		}
	})

	it('one wait at a time, ended before the next command: a hold never queues', async t => {
		const { page, fake } = await world(t)
		const plain = fake.answer
		fake.answer = (path, body, r) => { if (path === 'mode' && body.mode === 'hold') plain(path, body, r) } // all others wait
		await page.press('#right', async () => { // the browser has six connections: one for the stream, one for the sticks
			await until('sticks', () => fake.named('input').length === 1)
			for (let i = 1; i <= 8; i++) {
				await page.eval(() => document.getElementById('land').click())
				await until('a landing', () => fake.named('land').length === i)
				await until('the waits before it ended', () => fake.named('land').slice(0, -1).every(p => !p.open))
			}
			await page.eval(() => document.getElementById('hold').click())
			await page.shows('answer', '^Hold: done')
		})
		assert.deepStrictEqual(fake.named('land').filter(p => p.open), [])
	})

	it('an error\'s sentence is shown whole, also a long one on a small phone', async t => {
		const { page, fake } = await world(t, status(), { width: 320, height: 568, touch: true })
		const error = 'the autopilot refused arming (failed): ' + Array.from({ length: 12 }, (_, i) => `PreArm: reason number ${i} is here`).join('; ') + '; that was all.'
		fake.answer = (path, body, r) => r.writeHead(409).end(JSON.stringify({ error, code: 'refused' }))
		await page.click('#hold')
		await page.shows('answer', 'that was all\\.$')
		assert.strictEqual(await page.text('answer'), 'Hold: ' + error.replace(' (failed)', ''))
		// What does not fit can be scrolled to.
		await page.eval(() => { const a = document.getElementById('said'); a.scrollTop = a.scrollHeight })
		assert.ok(await page.eval(() => {
			const a = document.getElementById('said'), b = a.getBoundingClientRect()
			return Math.abs(a.scrollTop + a.clientHeight - a.scrollHeight) < 2 && b.top >= 0 && b.bottom <= innerHeight && a.scrollWidth <= a.clientWidth
		}))
		await page.spot('#hold')
	})

	it('a click on the map is a place, at several scales and behind 180°', async t => {
		for (const lon of [8.5455937, 179.9999]) {
			const home = { ...real.home, lon }
			const { page, shown } = await world(t, status({ home, target: null, position: { ...real.position, lat: home.lat, lon } }))
			const scale = () => page.eval(() => reach)
			let radius = await scale()
			for (const [button, sign] of [['#farther', 1], ['#farther', 1], ['#nearer', -1], ['#nearer', -1]]) {
				await page.click(button)
				assert.strictEqual(Math.sign(await scale() - radius), sign, `${button} from ${radius} m`)
				radius = await scale()
				await page.click('#map', { x: 100, y: -50 })
				const [east, north, perMetre] = await page.eval(home => {
					const lon = Number(document.getElementById('lon').value), lat = Number(document.getElementById('lat').value)
					return [((lon - home.lon + 540) % 360 - 180) * 111319.5 * Math.cos(home.lat * Math.PI / 180), (lat - home.lat) * 111319.5, pixels().perMetre]
				}, home)
				assert.ok(Math.abs(east * perMetre - 100) < 2 && Math.abs(north * perMetre - 50) < 2, `${radius} m: ${east} east, ${north} north, ${perMetre} pixels each`)
				const value = await page.eval(() => Number(document.getElementById('lon').value))
				assert.ok(value >= -180 && value < 180)
				await page.click('#cancel')
			}
			// Fit shows the target again, however far it is.
			await page.click('#fit')
			await shown(status({ home, target: { lat: home.lat + 0.01, lon, altitude: 20, distance: 1113 }, position: { ...real.position, lat: home.lat, lon } }))
			assert.ok(await page.eval(() => reach >= 1113 && fitted))
			assert.match(await page.text('rings'), /1.km/)
			assert.strictEqual(await page.text('fact-to-target'), '1.1\u00a0km')
		}
	})
})

describe('sticks', () => {
	const idle = { roll: 0, pitch: 0, yaw: 0, timeout: 0.4 }

	// steered lets the page's clock run until it sends these sticks.
	const steered = (page, fake, want) => until(JSON.stringify(want), async () => {
		await runLive(page, 100)
		return isDeepStrictEqual(fake.posts.at(-1)?.body, want)
	})

	it('go out ten times a second while they are held, and spring back', async t => {
		const { page, fake } = await world(t, status({ mode: 'position' }), { scripts: [stopped] })
		const at = await page.spot('#right'), width = await page.eval(() => document.getElementById('right').clientWidth)
		await page.mouse('mousePressed', at)
		await page.mouse('mouseMoved', { x: at.x + 0.2 * width, y: at.y - 0.8 * width }) // half right, forward beyond the end
		await until('the first', () => fake.posts.length === 1)
		for (let i = 2; i <= 21; i++) {
			await page.until('the one before is answered', () => !posting)
			await runLive(page, 100)
			await until(`input ${i}`, () => fake.posts.length === i)
			const { roll, pitch, ...rest } = fake.posts.at(-1).body
			assert.ok(Math.abs(roll - 0.5) < 0.02 && pitch === 1, `${roll} ${pitch}`)
			assert.deepStrictEqual(rest, { yaw: 0, timeout: 0.4 })
		}
		await page.until('it is answered', () => !posting)
		await page.mouse('mouseReleased', at)
		await until('the middle', () => fake.posts.length === 22)
		assert.deepStrictEqual(fake.posts.at(-1).body, idle)
		await page.until('it is answered', () => !posting)
		await runLive(page, 3000)
		await sleep(300)
		assert.strictEqual(fake.posts.length, 22)
	})

	it('are mavrest\'s to refuse: it is asked in every mode, and its sentence is shown whole', async t => {
		for (const mode of ['hold', 'land', 'other', null]) {
			const { page, fake } = await world(t, status({ mode }))
			const error = 'sticks move the drone in manual, altitude and position mode, not in ' + mode
			fake.answer = (path, body, r) => r.writeHead(409).end(JSON.stringify({ error, code: 'wrong_mode' }))
			await page.press('#right', () => page.until('the sentence', error => document.getElementById('answer').textContent.toLowerCase().startsWith(error.toLowerCase() + '.'), [error]))
			assert.strictEqual(fake.named('input').length, 1, 'and not asked again before they are let go')
		}
	})

	it('one at a time: a slow network gets no queue, and the sticks start anew', async t => {
		const { page, fake } = await world(t, status({ mode: 'position' }))
		fake.answer = () => {}
		for (let n = 1; n <= 2; n++) {
			await page.press('#right', async () => {
				await page.shows('answer', '^There was no answer\\. Release the sticks') // it was given up after a second
				await sleep(500)
				assert.strictEqual(fake.posts.length, n)
			})
			await until('no request is open', () => fake.posts.every(p => !p.open))
			await page.eval(() => say(''))
		}
	})

	it('of a hidden tab are let go', async t => {
		const own = await Browser.start() // with one window
		const { page, fake } = await world(t, status({ mode: 'position' }), { focus: false }, own)
		t.after(() => own.end())
		await page.eval(() => { document.getElementById('keys').checked = true })
		for (const hold of [() => page.key('down', 'KeyW'), async () => page.mouse('mousePressed', await page.spot('#right'))]) {
			const n = fake.posts.length
			await hold()
			await until('sticks', () => fake.posts.length > n + 3)
			const other = await own.open('about:blank', { tab: true, focus: false })
			await other.front()
			await page.until('the tab is hidden', () => document.hidden)
			await sleep(200) // for a request that was on its way
			const sent = fake.posts.length
			await sleep(1500)
			assert.strictEqual(fake.posts.length, sent)
			await other.close()
			await page.front()
			await page.until('it is back', () => !document.hidden)
			await sleep(500)
			assert.strictEqual(fake.posts.length, sent, 'nor does it go on by itself')
			await page.key('up', 'KeyW')
		}
	})

	it('of keys: only where they were asked for, not while typing, let go when the window is left', async t => {
		const { page, fake } = await world(t, status({ mode: 'position' }), { scripts: [stopped] })
		await page.key('down', 'KeyW')
		await runLive(page, 500)
		await page.key('up', 'KeyW')
		await opened(page)
		await page.click('#keys')
		await page.type('#lat', '4')
		await page.key('down', 'KeyS')
		await page.key('down', 'ArrowUp')
		await runLive(page, 500)
		await sleep(300)
		assert.deepStrictEqual(fake.posts, [])
		await page.key('up', 'ArrowUp')
		await page.key('up', 'KeyS')
		await page.eval(() => document.activeElement.blur())
		await page.click('#hands p') // nothing has the focus
		const moves = [
			['KeyW', { throttle: 0.75 }], ['KeyS', { throttle: 0.25 }], ['KeyD', { yaw: 0.5 }], ['KeyA', { yaw: -0.5 }],
			['ArrowUp', { pitch: 0.5 }], ['ArrowDown', { pitch: -0.5 }], ['ArrowRight', { roll: 0.5 }], ['ArrowLeft', { roll: -0.5 }],
		]
		for (const [code, moved] of moves) {
			for (const [action, want] of [['down', { ...idle, ...moved }], ['up', idle]]) {
				await page.key(action, code)
				await steered(page, fake, want)
			}
		}
		await page.key('down', 'ArrowUp', { modifiers: 8 }) // Shift
		await steered(page, fake, { ...idle, pitch: 1 })
		await page.key('up', 'Shift')
		await steered(page, fake, { ...idle, pitch: 0.5 })
		await page.eval(() => window.dispatchEvent(new Event('blur')))
		await steered(page, fake, idle)
		await page.key('up', 'ArrowUp')
	})

	it('in manual mode have a thrust that stays where it was left, at first none on the ground', async t => {
		const { page, fake } = await world(t, status({ mode: 'manual', in_air: false }), { scripts: [stopped] })
		await runLive(page, 100)
		const right = await page.spot('#right'), left = await page.spot('#left'), width = await page.eval(() => document.getElementById('left').clientWidth)
		const last = async () => {
			const n = fake.posts.length
			await until('two more', async () => {
				await runLive(page, 100)
				return fake.posts.length > n + 1 // the first may have been on its way
			})
			return fake.posts.at(-1).body.throttle
		}
		await page.mouse('mousePressed', right)
		assert.strictEqual(await last(), 0)
		await page.mouse('mouseReleased', right)
		await page.mouse('mousePressed', left)
		await page.mouse('mouseMoved', { x: left.x, y: left.y - 0.4 * width })
		assert.ok(Math.abs(await last() - 0.5) < 0.02)
		await page.mouse('mouseReleased', { x: left.x, y: left.y - 0.4 * width })
		await until('let go', async () => {
			await runLive(page, 100)
			return page.eval(() => !flying && !posting)
		})
		await page.mouse('mousePressed', right)
		assert.ok(Math.abs(await last() - 0.5) < 0.02)
		await page.mouse('mouseReleased', right)
	})

	it('of a gamepad fly where they were asked for', async t => {
		const pad = `navigator.getGamepads = () => [null, { connected: true, axes: [0.05, -0.6, 1, 0.5] }]` // down is positive
		const { page, fake } = await world(t, status({ mode: 'position' }), { scripts: [pad] })
		await sleep(500)
		assert.deepStrictEqual(fake.posts, [])
		await opened(page)
		await page.click('#keys')
		await until('sticks', () => fake.posts.length > 1)
		assert.deepStrictEqual(fake.posts.at(-1).body, { roll: 1, pitch: -0.5, yaw: 0, timeout: 0.4, throttle: 0.8 })
	})
})

describe('people', () => {
	const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
	const screens = [[320, 568, true], [390, 664, true], [390, 844, true], [568, 320, true], [844, 390, true], [820, 1180, true], [1024, 768, true], [1366, 700, false], [1920, 1080, false]]

	it('see the whole flight on each screen without scrolling: drone, altitude, speed, place, sticks, answer', async t => {
		for (const [width, height, touch] of screens) {
			const { page, fake } = await world(t, status(), { width, height, touch })
			fake.answer = (path, body, r) => r.writeHead(409).end('{"error":"the autopilot refused the hold (denied)","code":"refused"}')
			await page.click('#map', { x: 15, y: 15 })
			await page.click('#hold')
			await page.shows('answer', 'refused the hold')
			const seen = await page.eval(() => {
				const box = e => e.getBoundingClientRect()
				const id = name => document.getElementById(name)
				const inside = e => box(e).width > 0 && box(e).left >= 0 && box(e).top >= 0 && box(e).right <= innerWidth && box(e).bottom <= innerHeight
				const open = e => { // nothing lies over its middle
					const b = box(e), hit = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2)
					return inside(e) && (e.contains(hit) || hit?.contains(e))
				}
				const names = ['hold', 'return', 'land', 'goto', 'land-there', 'cancel', ...innerHeight > 340 ? ['nearer', 'farther', 'fit'] : [], 'left', 'right', 'map', 'doing', 'fact-altitude', 'fact-speed', 'fact-battery', 'by', 'answer']
				const all = [...document.querySelectorAll('button')].filter(e => e.offsetWidth)
				return {
					wide: document.documentElement.scrollWidth - innerWidth,
					head: [box(id('head')).left, innerWidth - box(id('head')).right],
					hidden: names.filter(name => !open(id(name))),
					modes: [...document.querySelectorAll('#sticks [data-mode]')].filter(e => !open(e)).length,
					drone: inside(id('drone')),
					tallest: box(id('hold')).height >= Math.max(...all.filter(b => inside(b) && !b.closest('#strip')).map(b => box(b).height)),
					small: all.filter(b => box(b).height < 40 || box(b).width < 40).map(b => b.id),
					cut: [...all, ...document.querySelectorAll('dd, h1')].filter(e => e.scrollWidth > e.clientWidth + 1 && !e.closest('#facts')).map(e => e.id),
				}
			})
			assert.deepStrictEqual(seen, { wide: 0, head: [0, 0], hidden: [], modes: 0, drone: true, tallest: true, small: [], cut: [] }, `${width} x ${height}`)
		}
	})

	it('see both sticks beside a scroll bar that takes room', async t => {
		const { page } = await world(t, status(), { width: 1280, height: 800 })
		assert.strictEqual(await page.eval(() => {
			const side = document.getElementById('side')
			side.style.borderRight = '17px solid' // as wide as Windows' scroll bar
			return side.scrollWidth - side.clientWidth
		}), 0)
	})

	it('have nothing under a notch', async t => {
		for (const [width, height] of [[390, 844], [844, 390]]) {
			const { page } = await world(t, status(), { width, height, touch: true })
			const [top, side] = height > width ? [47, 0] : [0, 44]
			await page.send('Emulation.setSafeAreaInsetsOverride', { insets: { top, left: side, right: side, bottom: 30 } })
			const under = await page.eval((top, side) => ['doing', 'fact-battery', 'hold', 'land', 'left', 'right', 'map'].filter(id => {
				const b = document.getElementById(id).getBoundingClientRect()
				return b.left < side || b.right > innerWidth - side || b.bottom > innerHeight - 30 || b.top < top
			}), top, side)
			assert.deepStrictEqual(under, [])
		}
	})

	it('have labels, contrast and landmarks, light and dark', async t => {
		for (const scheme of ['light', 'dark']) {
			for (const [width, height, touch] of [[390, 844, true], [844, 390, true], [820, 1180, true], [1366, 768, false]]) {
				const { page, shown, fake } = await world(t, status(), { width, height, touch, media: { 'prefers-color-scheme': scheme } })
				fake.answer = (path, body, r) => r.writeHead(409).end('{"error":"no"}')
				await opened(page)
				await page.type('#speed', 'x')
				await page.click('#hold')
				await page.shows('answer', 'no')
				// Everything that has a colour of its own: a failsafe, a banner, what is stale, each severity.
				await shown(status({
					failsafe: true, online: false, armed: false, armable: true, in_air: scheme === 'dark', battery: { ...real.battery, age: 99 },
					messages: ['emergency', 'warning', 'notice', 'info'].map(severity => ({ severity, text: 'text', age: 3 })),
				}))
				await sleep(700) // the answer appears
				await page.send('Runtime.evaluate', { expression: axe })
				const violations = await page.eval(async () => (await axe.run({ rules: { 'color-contrast-enhanced': { enabled: true } } })).violations.map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))
				assert.deepStrictEqual(violations, [], `${scheme} ${width}`)
				page.faults.length = 0 // axe sets styles of its own, which the policy forbids
			}
		}
	})

	it('with a keyboard alone reach every control, and take off', async t => {
		const { page, fake } = await world(t, status({ in_air: false }))
		await opened(page)
		const reached = new Set()
		for (let i = 0; i < 60; i++) {
			await page.key('down', 'Tab')
			await page.key('up', 'Tab')
			const id = await page.eval(() => { const e = document.activeElement; return e === document.body ? '' : e.id || (e.dataset.mode ? 'to ' + e.dataset.mode : e.textContent) })
			if (reached.has(id)) break
			if (id) reached.add(id)
		}
		const all = await page.eval(() => [...document.querySelectorAll('button, input')].filter(e => e.offsetWidth).map(e => e.id || 'to ' + e.dataset.mode))
		assert.deepStrictEqual(all.filter(id => !reached.has(id)), [])
		for (const [code, n] of [['Enter', 1], ['Space', 2]]) {
			await page.eval(() => document.getElementById('takeoff').focus())
			await page.key('down', code)
			await until('takeoff', () => fake.named('takeoff').length === n)
			await page.key('up', code)
		}
		await page.eval(() => document.getElementById('hold').focus())
		await page.key('down', 'Enter')
		await page.key('up', 'Enter')
		await until('hold', () => fake.named('mode').length === 1)
		await page.shows('answer', '^Hold: done')
		assert.strictEqual(fake.posts.length, 3)
	})

	it('with a screen reader take off by two activations, a second apart', async t => {
		const { page, fake } = await world(t, status({ in_air: false }), { scripts: [stopped] })
		const activate = () => page.eval(() => document.getElementById('takeoff').click())
		await activate()
		await page.shows('answer', 'again')
		await activate() // a double click counts as one
		await run(page, 1500)
		await sleep(300)
		assert.deepStrictEqual(fake.posts, [])
		await activate()
		await until('takeoff', () => fake.posts.length === 1)
		const live = await page.eval(() => ['banner', 'answer', 'spoken', 'alarm'].map(id => {
			const e = document.getElementById(id)
			return e.getAttribute('role') ?? e.getAttribute('aria-live')
		}))
		assert.deepStrictEqual(live, ['alert', 'assertive', 'polite', 'assertive'])
	})

	it('who want less motion get less', async t => {
		const fill = page => page.eval(() => { const b = document.getElementById('takeoff'); b.classList.add('pressed'); return getComputedStyle(b, '::after').transitionDuration })
		const { page } = await world(t)
		assert.strictEqual(await fill(page), '1s')
		const { page: calm } = await world(t, status(), { media: { 'prefers-reduced-motion': 'reduce' } })
		assert.strictEqual(await fill(calm), '0s')
	})
})

describe('a pilot', () => {
	const refusing = error => (path, body, r) => r.writeHead(409).end(JSON.stringify({ error, code: 'refused' }))
	const answer = page => page.eval(() => document.getElementById('answer').textContent)
	const beside = (page, id) => page.eval(id => document.querySelector(`#${id} + small`)?.textContent, id)

	it('writes 2,5 and gets two and a half; what is no number is marked, and an arrow key moves no place', async t => {
		const { page, fake, shown } = await world(t, status({ in_air: false }))
		await opened(page)
		await page.type('#up', '2,5')
		await page.press('#takeoff', () => until('takeoff', () => fake.posts.length === 1))
		assert.deepStrictEqual([fake.posts[0].path, fake.posts[0].body], ['takeoff', { altitude: 2.5, wait: 600 }])
		await shown(status({ mode: 'hold', vehicle_mode: 'AUTO.LOITER' }))
		for (const text of ['1.234,5', '1e2', 'x', '2 5', '--1']) {
			await page.type('#speed', text)
			assert.strictEqual(await beside(page, 'speed'), 'not a number', text)
			await page.type('#altitude', '20')
			await page.click('#goto-numbers')
			await page.shows('answer', 'Speed is not a number')
		}
		await page.eval(() => { document.getElementById('speed').value = ''; document.getElementById('altitude').value = '' })
		await page.type('#lat', String(real.home.lat))
		await page.type('#lon', String(real.home.lon))
		for (const code of ['ArrowUp', 'ArrowDown', 'ArrowUp']) {
			await page.key('down', code)
			await page.key('up', code)
		}
		assert.deepStrictEqual(await page.eval(() => ['lat', 'lon'].map(id => document.getElementById(id).value)), [real.home.lat, real.home.lon].map(String))
		// Far away Enter does not fly, however often.
		await page.type('#lat', String(real.home.lat + 1))
		for (let i = 0; i < 2; i++) {
			await page.key('down', 'Enter')
			await page.key('up', 'Enter')
			await page.shows('answer', 'press the button')
			await sleep(1100)
		}
		assert.strictEqual(fake.posts.length, 1)
		assert.deepStrictEqual(await page.eval(() => [...document.querySelectorAll('input:not([type=checkbox])')].map(e => e.type + e.inputMode)), Array(5).fill('textdecimal'))
	})

	it('changes no height without a number, and reads that centred sticks drift in altitude mode', async t => {
		const { page, fake, shown } = await world(t, status({ mode: 'takeoff', done: false }))
		await opened(page)
		await page.press('#goto', () => sleep(1500))
		assert.strictEqual(await page.text('answer'), '', 'a button that promises nothing was pressed')
		await page.press('#goto-numbers', () => page.shows('answer', 'Change height: give a height'))
		await shown(status({ mode: 'altitude', vehicle_mode: 'ALTCTL', done: null }))
		await page.shows('tip', 'With centred sticks it drifts')
		assert.deepStrictEqual(fake.posts, [])
	})

	it('can\'t land there without a place', async t => {
		const { page, fake } = await world(t)
		await opened(page)
		const press = async () => { // as a screen reader does, also where the button is not in view
			for (let i = 0; i < 2; i++) {
				await page.eval(() => document.getElementById('land-there').click())
				await sleep(1100)
			}
		}
		await press()
		await page.shows('answer', 'Land there: tap the map')
		for (const [field, missing] of [['#lat', 'Longitude'], ['#lon', 'Latitude']]) {
			await page.eval(() => choose())
			await page.type(field, '8')
			await press()
			await page.shows('answer', `Land there: ${missing} is missing`)
			await page.eval(field => document.querySelector(field).focus(), field)
			await page.key('down', 'Enter')
			await page.key('up', 'Enter')
			await page.shows('answer', `Fly there: ${missing} is missing`)
		}
		assert.deepStrictEqual(fake.posts, [])
	})

	it('presses for a second where it is far, low or a landing, and shows how far and how high', async t => {
		const p = { ...real.position, altitude: 10.2, age: 0 }
		const { page, fake } = await world(t, status({ position: p, done: true }), { scripts: [stopped] })
		await opened(page)
		for (const [metres, altitude, says, risky] of [
			[20, '', '20\u00a0m · stay at 10\u00a0m', false], [490, '', '490\u00a0m · stay at 10\u00a0m', false], [20, '30', '20\u00a0m · up to 30\u00a0m', false], [20, '8', '20\u00a0m · down to 8.0\u00a0m', false],
			[510, '', '510\u00a0m · stay at 10\u00a0m · press 1 s', true], [20, '1,9', '20\u00a0m · down to 1.9\u00a0m · press 1 s', true],
		]) {
			await page.eval((lat, lon) => choose(lat, lon), String(p.lat + metres / 111319.5), String(p.lon))
			await page.type('#altitude', altitude || ' ')
			await page.until(says, says => document.querySelector('#goto small').textContent === says, [says])
			const n = fake.posts.length
			await page.click('#land-there')
			await page.click('#goto')
			if (risky) {
				await sleep(300)
				assert.strictEqual(fake.posts.length, n)
				const at = await page.spot('#goto')
				await page.mouse('mousePressed', at)
				await runLive(page, 1000)
				await page.mouse('mouseReleased', at)
			}
			await until('it flies', () => fake.posts.length === n + 1)
			assert.strictEqual(fake.posts.at(-1).path, 'goto')
			await page.shows('answer', 'done')
			assert.ok(await page.eval(() => document.getElementById('land-there').classList.contains('gone')), 'the place is forgotten')
		}
	})

	it('reads an answer in one place, until its cause has gone or for 15 s; a repeated one is shown anew', async t => {
		for (const [width, height, touch] of [[390, 844, true], [844, 390, true], [820, 1180, true], [1366, 700, false]]) {
			const { page, fake, shown } = await world(t, status({ mode: 'hold' }), { width, height, touch, scripts: [stopped] })
			fake.answer = refusing('input: the drone is in mode hold; set manual, altitude or position first')
			const refused = async () => {
				await shown(status({ mode: 'hold' }))
				const at = await page.spot('#right')
				await page.mouse('mousePressed', at)
				await page.shows('answer', '^Sticks do nothing in hold: press Position first\\. Release the sticks, then move them again\\.$')
				await page.mouse('mouseReleased', at)
			}
			await refused()
			assert.ok(await page.eval(() => {
				const a = document.getElementById('answer'), b = a.getBoundingClientRect()
				return b.top >= 0 && b.bottom <= innerHeight && a.contains(document.elementFromPoint(b.x + 20, b.y + 10))
			}), `in view, ${width} x ${height}`)
			for (const button of ['#hold', '#return', '#land', '[data-mode=position]']) await page.spot(button) // not covered
			await run(page, 16000)
			await page.shows('answer', '^$')
			await refused()
			await run(page, 1500)
			await shown(status({ mode: 'position' }))
			assert.strictEqual(await answer(page), '')
			// The same sentence twice is shown, and spoken, twice.
			fake.answer = refusing('the autopilot refused')
			await page.click('#hold')
			await page.shows('answer', 'refused')
			assert.ok(await page.eval(() => !!(window.first = document.getElementById('answer').firstChild)))
			await page.click('#hold')
			await page.until('a new one', () => document.getElementById('answer').firstChild !== window.first && /refused/.test(document.getElementById('answer').textContent))
			// An answer stays while its command is under way.
			fake.answer = () => {}
			await page.click('#hold')
			await run(page, 20000)
			await page.shows('answer', 'under way')
		}
	})

	it('reads in words what the drone does', async t => {
		const { page, shown } = await world(t, status({ vehicle_mode: null, vehicle: null, mode: 'manual', armed: null, in_air: null, landed_state: null, online: false }), { scripts: [stopped] })
		const is = async (s, words) => {
			await shown(status(s))
			assert.strictEqual(await page.text('doing'), words, JSON.stringify(s))
		}
		assert.strictEqual(await page.text('doing'), 'Waiting for a vehicle')
		assert.strictEqual(await page.text('fact-mode'), '–')
		assert.strictEqual(await page.eval(() => document.querySelector('[aria-pressed=true]')), null)
		const ground = { armed: false, in_air: false, landed_state: 'on_ground' }, air = { armed: true, in_air: true, landed_state: 'in_air' }
		const target = { lat: real.home.lat, lon: real.home.lon, altitude: 20, distance: 21.4 }, near = { ...target, distance: 1 }
		await is({ ...ground, mode: 'manual', target: null }, 'On the ground')
		await is({ ...ground, armed: true, mode: 'takeoff', done: false, target: null }, 'Taking off')
		await is({ ...air, mode: 'takeoff', done: false, target: near }, 'Taking off, to 20\u00a0m')
		await is({ ...air, mode: 'takeoff', done: true, target: near }, 'Holding')
		await is({ ...air, mode: 'hold', done: false, target }, 'Flying to the target, 21\u00a0m')
		await is({ ...air, mode: 'hold', done: false, target: near, position: { ...real.position, altitude: 10 } }, 'Climbing, to 20\u00a0m')
		await is({ ...air, mode: 'hold', done: false, target: null }, 'Stopping')
		await is({ ...air, mode: 'hold', done: true, target: near }, 'Holding')
		await is({ ...air, mode: 'position', done: null, target: null }, 'Flying by sticks: position')
		assert.deepStrictEqual(await page.eval(() => [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent)), ['Position'])
		await is({ ...air, mode: 'land', done: false, target }, 'Flying to the landing place, 21\u00a0m')
		await is({ ...air, mode: 'land', done: false, target: null }, 'Landing')
		await is({ ...ground, mode: 'land', vehicle_mode: 'AUTO.LOITER', done: true, target: null }, 'Landed')
		await is({ ...ground, mode: 'hold', done: null, target: null }, 'Landed')
		await is({ ...ground, mode: 'rtl', done: true, target: null }, 'Landed')
		await is({ ...air, mode: 'other', vehicle_mode: 'ACRO', done: null, target: null }, 'In mode ACRO')
	})

	it('sees the autopilot\'s own judgement of the battery, and no other', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		for (const [s, bad] of [[{}, false], [{ battery: { ...real.battery, remaining: 3 } }, false], [{ unhealthy: ['battery'] }, true], [{ failsafe: true }, false]]) {
			await shown(status({ unhealthy: [], ...s }))
			assert.strictEqual(await page.eval(() => document.getElementById('fact-battery').classList.contains('bad')), bad)
		}
	})

	it('holds by Escape, wherever the focus is', async t => {
		const { page, fake } = await world(t)
		await opened(page)
		for (const [n, id] of ['lat', 'goto-numbers', 'hold', 'messages'].entries()) {
			await page.eval(id => document.getElementById(id).focus(), id)
			await page.key('down', 'Escape')
			await page.key('up', 'Escape')
			await until('hold', () => fake.posts.length === n + 1)
			assert.deepStrictEqual(fake.posts[n].body, { mode: 'hold', wait: 600 })
		}
	})

	it('says by Escape that the drone can\'t hold now, and lands it by a second one', async t => {
		const modes = real.vehicle.modes.filter(mode => mode !== 'hold')
		const { page, fake, shown } = await world(t)
		await opened(page)
		await shown(status({ in_air: true, armed: true, vehicle: { ...real.vehicle, modes } }))
		assert.match(await page.text('tip'), /Escape, pressed twice, lands/)
		const escape = async () => {
			await page.key('down', 'Escape')
			await page.key('up', 'Escape')
		}
		await escape()
		await until('the warning', async () => /Escape again to land/.test(await page.text('answer')))
		assert.strictEqual(fake.posts.length, 0)
		await escape()
		await until('land', () => fake.posts.length === 1)
		assert.strictEqual(fake.posts[0].path, 'land')
	})

	it('without contact sees the sticks\' owner grey, and sends Hold and Land only', async t => {
		const by = { active: true, expires_in: 0.4, by: 'client', from: '192.168.1.23', yours: false }
		const { page, fake, shown } = await world(t, status({ mode: 'position', input: by }), { scripts: [stopped] })
		await opened(page)
		await shown(status({ mode: 'position', input: by }))
		const grey = () => page.eval(() => getComputedStyle(document.getElementById('by')).fontWeight < 600)
		assert.ok(!await grey())
		fake.mute = true
		await run(page, 2000)
		assert.match(await page.text('banner'), /^No contact/)
		assert.ok(await grey())
		for (const button of ['#return', '#disarm', '[data-mode=position]', '[data-mode=rtgs]']) {
			await page.click(button)
			await page.shows('answer', 'was not sent: without contact only Hold and Land are')
			await page.eval(() => say(''))
		}
		await page.mouse('mousePressed', await page.spot('#right'))
		await run(page, 300)
		await page.mouse('mouseReleased', await page.spot('#right'))
		assert.deepStrictEqual(fake.posts, [])
		await page.click('#hold')
		await until('hold', () => fake.posts.length === 1)
		await page.click('#land')
		await until('land', () => fake.posts.length === 2)
		await page.go(fake.url) // loaded anew, the page waits for its first event
		await page.press('#right', () => page.shows('answer', '^There is no contact\\. Release the sticks'))
	})

	it('after an outage centres the sticks first', async t => {
		const { page, fake, shown } = await world(t, status({ mode: 'position' }), { scripts: [stopped] })
		const right = await page.spot('#right'), width = await page.eval(() => document.getElementById('right').clientWidth)
		await page.mouse('mousePressed', right)
		await page.mouse('mouseMoved', { x: right.x, y: right.y - 0.4 * width })
		await until('forward', async () => { await run(page, 100); return fake.posts.at(-1)?.body.pitch === 1 })
		await page.until('answered', () => !posting)
		await run(page, 1300) // no event
		await page.shows('answer', 'Release the sticks, then move them again')
		await page.until('answered', () => !posting)
		const n = fake.posts.length
		for (let i = 0; i < 10; i++) {
			await shown(status({ mode: 'position' }))
			await run(page, 100)
		}
		await sleep(200)
		assert.strictEqual(fake.posts.length, n)
		await page.mouse('mouseReleased', right)
		await page.mouse('mousePressed', right)
		await until('sticks', () => fake.posts.length > n)
		await page.mouse('mouseReleased', right)
	})

	// flight.test.js tests the drone's side of it.
	it('reads the truth about a command that the page gave up', async t => {
		const { page, fake, shown } = await world(t, status(), { scripts: [stopped] })
		fake.answer = () => {}
		await page.eval((lat, lon) => choose(lat, lon), String(real.position.lat), String(real.position.lon))
		await shown(status({ done: true, position: { ...real.position, altitude: 10 } }))
		await page.click('#goto')
		await until('goto', () => fake.posts.length === 1)
		fake.mute = true
		await run(page, 2000)
		await page.shows('answer', '^Fly there: no answer\\. See at the top whether the drone does it\\.$')
		await until('its connection is closed', () => !fake.posts[0].open)
	})
})
