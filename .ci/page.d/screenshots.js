// Makes pictures of the page in a simulated flight: screenshots.js FOLDER
'use strict'
const { Browser, until } = require('./browser.js')
const { Mavrest } = require('./world.js')

const screens = {
	phone: { width: 390, height: 844, touch: true }, sideways: { width: 844, height: 390, touch: true },
	tablet: { width: 1024, height: 768, touch: true }, laptop: { width: 1280, height: 800 },
}

async function main() {
	const drone = await Mavrest.start(), browser = await Browser.start()
	const pages = []
	for (const [name, screen] of Object.entries(screens)) {
		for (const scheme of name === 'phone' || name === 'laptop' ? ['light', 'dark'] : ['light']) {
			// Each page has its own host: a browser has six connections to one host.
			const page = await browser.open(`http://127.0.0.${pages.length + 1}:${drone.port}/api/drone/status`, { ...screen, media: { 'prefers-color-scheme': scheme } })
			pages.push({ page, file: `${process.argv[2]}/page-${name}-${scheme}.png` })
		}
	}
	await drone.armable()
	const { home } = await drone.status(), there = (north, east) => ({ lat: home.lat + north / 111319.5, lon: home.lon + east / 75000 })
	await until('it takes off', async () => (await drone.post('takeoff', { altitude: 20, wait: 60 })).done, 90)
	await drone.post('goto', { ...there(45, 20), heading: 30, wait: 60 })
	await drone.post('goto', { ...there(30, 70), altitude: 32, heading: 105, speed: 4 })
	await drone.until('it is half-way', s => s.target?.altitude > 30 && s.target.distance < 24)
	for (const { page } of pages) await page.click('#map', { x: -30, y: -20 })
	for (const { page, file } of pages) await page.picture(file)
	await browser.end()
	await drone.end()
}
main()
