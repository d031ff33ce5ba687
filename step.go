package main

import (
	"cmp"
	"fmt"
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// step is one MAVLink command. Unset numbers of a COMMAND_LONG are NaN on PX4 and 0 on ArduPilot.
type step struct {
	cmd common.MAV_CMD

	// asInt: a COMMAND_INT: its place is in degE7; float32 degrees would miss by a metre
	asInt bool

	// frame: of a COMMAND_INT
	frame common.MAV_FRAME

	// p: param1 to param7 of a COMMAND_LONG; 1 to 4 and z (7) of a COMMAND_INT
	p [7]float32

	// x, y: degE7, of a COMMAND_INT
	x, y int32

	// name is what it is in a sentence, where its command alone does not say that: a DO_REPOSITION that flies to no
	// place. "" for any other.
	name string

	// away: the vehicle flies to a place, or does so next: it must be clear of the ground (rule 11)
	away bool

	// to: the mode that it leads to; nil if it sets none
	to *goal

	// optional: the plan goes on when it is refused or not answered
	optional bool
}

// enter is DO_SET_MODE to the autopilot's own mode that stands for one of ours.
func (f firmware) enter(mode Mode) step { return f.setMode(mode, entered[f][mode]) }

// setMode is DO_SET_MODE with the autopilot's own mode number; mode is our word for that mode.
// Bit 0 of param1 says that a custom mode follows.
func (f firmware) setMode(mode Mode, custom uint32) step {
	s := f.step(common.MAV_CMD_DO_SET_MODE, 1, float32(custom))
	if f == px4 {
		s.p[1] = float32(custom >> 16 & 0xff)
		s.p[2] = float32(custom >> 24)
	}
	return s.leadingTo(mode, custom)
}

func (f firmware) armDisarm(arm bool) step {
	s := f.step(common.MAV_CMD_COMPONENT_ARM_DISARM, 0, 0)
	if arm {
		s.p[0] = 1
	}
	return s
}

// step is a COMMAND_LONG with the given params from param1 on; the others are unset.
func (f firmware) step(cmd common.MAV_CMD, params ...float32) step {
	s := step{cmd: cmd}
	if f == px4 {
		for i := range s.p {
			s.p[i] = float32(math.NaN())
		}
	}
	copy(s.p[:], params)
	return s
}

// leadingTo is s with the goal that it leads to.
func (s step) leadingTo(mode Mode, custom uint32) step {
	s.to = &goal{mode: mode, number: custom}
	return s
}

// needsStream reports whether a stick stream, if one runs, must have run for a while before the
// step: it enters a stick mode, or arms. ArduPilot without a receiver arms only on a stream.
func (s *step) needsStream() bool { return s.arms() || (s.to != nil && s.to.mode.flownBySticks()) }

// asks reports whether the command changes nothing in the flight: it is a question.
func (s *step) asks() bool { return s.cmd == common.MAV_CMD_RUN_PREARM_CHECKS }

// byReport reports whether a report proves the command, whatever its acks are.
func (s *step) byReport() bool {
	return s.cmd == common.MAV_CMD_DO_SET_MODE || s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM
}

// isShown reports whether a report shows what the command has done.
func (s *step) isShown() bool { return s.to != nil || s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM }

// message is the step's MAVLink message; confirmation is the number of copies before it.
func (s *step) message(system byte, confirmation uint8) message.Message {
	if s.asInt {
		return &common.MessageCommandInt{
			TargetSystem: system, TargetComponent: autopilotID,
			Frame: s.frame, Command: s.cmd,
			Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
			X: s.x, Y: s.y, Z: s.p[6],
		}
	}
	return &common.MessageCommandLong{
		TargetSystem: system, TargetComponent: autopilotID,
		Command: s.cmd, Confirmation: confirmation,
		Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
		Param5: s.p[4], Param6: s.p[5], Param7: s.p[6],
	}
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	if s.arms() {
		return "arming"
	}
	return cmp.Or(s.name, commandNames[s.cmd], fmt.Sprintf("command %d", s.cmd))
}

var commandNames = map[common.MAV_CMD]string{
	common.MAV_CMD_DO_SET_MODE:          "the mode change",
	common.MAV_CMD_COMPONENT_ARM_DISARM: "disarming",
	common.MAV_CMD_NAV_TAKEOFF:          "the takeoff",
	common.MAV_CMD_DO_REPOSITION:        "the goto",
	common.MAV_CMD_DO_CHANGE_SPEED:      "the speed",
	common.MAV_CMD_CONDITION_YAW:        "the heading",
}

func (s *step) arms() bool { return s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && s.p[0] == 1 }
