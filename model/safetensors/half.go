package safetensors

import "math"

// BFloat16ToFloat32 widens a bfloat16; exact.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBFloat16 rounds to nearest even. NaN stays NaN.
func Float32ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40 // quiet: truncation could leave an infinity
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Float16ToFloat32 widens an IEEE half; exact.
func Float16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1f)
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero and subnormals: frac · 2^-24
		v := math.Float32bits(float32(frac) * (1.0 / (1 << 24)))
		return math.Float32frombits(sign | v)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Float32ToFloat16 rounds to nearest even; values beyond 65504 become
// infinities. NaN stays NaN.
func Float32ToFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // rounds to 65536 or more, or is infinite
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a subnormal, a multiple of 2^-24
		// Adding 0.5 aligns the ulp to 2^-24, so that the addition rounds.
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-math.Float32bits(0.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}
