package kernels

import "golang.org/x/sys/cpu"

// bestLevel is the widest instruction set that both the CPU and the operating
// system support.
var bestLevel = func() level {
	switch x := cpu.X86; {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX2 && x.HasFMA:
		return levelAVX512
	case x.HasAVX2 && x.HasFMA:
		return levelAVX2
	}
	return levelGo
}()
