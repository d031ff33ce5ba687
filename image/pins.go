// Package image pins what the SD card's image is made of: go.mod has the versions,
// go.sum their hashes. build, beside this file, puts it together.
package image

import (
	_ "github.com/gokrazy/firmware"   // what a Raspberry Pi 3 or 4 loads before the kernel
	_ "github.com/gokrazy/gokrazy"    // process 1
	_ "github.com/gokrazy/kernel.rpi" // the kernel
	_ "github.com/gokrazy/rpi-eeprom" // what a Pi 4 has in its flash, brought up to date
)
