package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is written as 1024, 64KiB, 64MiB, 2GiB or, in
// powers of ten, 64kB, 64MB, 2GB.
type Size int64

// Sizes.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

type unit struct {
	name  string
	bytes Size
}

// units are the units that Size.Set parses. Size.String writes the first four, which come largest first.
func units() []unit {
	return []unit{
		{"GiB", GiB},
		{"MiB", MiB},
		{"KiB", KiB},
		{"B", 1},
		{"GB", 1e9},
		{"MB", 1e6},
		{"kB", 1e3},
	}
}

// Set parses a size. It refuses negative sizes, fractions, and sizes above 2^63-1 bytes.
func (s *Size) Set(text string) error {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	suffix := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a size: write a whole number and a unit, such as 64MiB", text)
	}
	if suffix == "" {
		suffix = "B"
	}
	for _, u := range units() {
		if !strings.EqualFold(suffix, u.name) {
			continue
		}
		if n > math.MaxInt64/int64(u.bytes) {
			return fmt.Errorf("%q is too large", text)
		}
		*s = Size(n) * u.bytes
		return nil
	}
	return fmt.Errorf("%q is not a size: there is no unit %q; use B, KiB, MiB or GiB", text, suffix)
}

// String writes the size in the largest unit that leaves a whole number.
func (s Size) String() string {
	for _, u := range units()[:4] {
		if s != 0 && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	return "0B"
}

// Type is the word for the value in --help.
func (s *Size) Type() string { return "size" }
