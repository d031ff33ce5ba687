// Tests examples/dashboard.html on an origin of its own, with and without -origin.
'use strict'
const { it, before, after } = require('node:test')
const assert = require('node:assert')
const fs = require('node:fs')
const http = require('node:http')
const { Browser } = require('./browser.js')
const { Mavrest } = require('./world.js')

let browser
before(async () => { browser = await Browser.start() })
after(() => browser.end())

it('a dashboard of another origin reads and commands with -origin, and does neither without', async t => {
	const dashboard = fs.readFileSync(__dirname + '/../../examples/dashboard.html')
	const server = http.createServer((q, r) => r.writeHead(200, { 'Content-Type': 'text/html' }).end(dashboard))
	await new Promise(done => server.listen(0, done))
	const origin = `http://localhost:${server.address().port}`
	const drones = [await Mavrest.start('sim', '-origin', origin), await Mavrest.start('sim:ardupilot', '-origin', origin), await Mavrest.start('sim')]
	t.after(() => {
		server.close()
		server.closeAllConnections()
		return Promise.all(drones.map(d => d.end()))
	})
	await drones[0].armable()
	await drones[0].post('takeoff', { altitude: 5, wait: 60 })
	const page = await browser.open(`${origin}/dashboard.html?` + drones.map(d => 'drone=' + d.lan).join('&'))
	const card = (n, what) => page.eval((n, what) => document.querySelectorAll('article')[n].querySelector(what).textContent, n, what)
	const shows = (n, what, text) => page.until(`${n}: ${what} ${text}`, (n, what, text) => document.querySelectorAll('article')[n].querySelector(what).textContent.includes(text), [n, what, text])
	await shows(0, '.mode', 'takeoff, armed')
	await shows(1, '.mode', 'manual, disarmed')
	assert.match(await card(0, '.where'), /^[45](\.\d+)? m · .* m\/s · \d+ %$/)
	assert.strictEqual(await card(2, '.mode'), 'no connection')
	await page.click('article:nth-of-type(1) [data-path=mode]')
	await shows(0, '.answer', 'accepted')
	await shows(0, '.mode', 'hold, armed')
	await page.click('article:nth-of-type(3) [data-path=land]')
	await shows(2, '.answer', 'was mavrest started with -origin ' + origin)
	assert.strictEqual((await drones[2].status()).mode, 'manual')
})
