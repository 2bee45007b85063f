// Package keyrange converts ranges of keys, those k with start <= k < end or every
// k >= start if end is empty, from and to the form that etcd's API and ours have.
package keyrange

// Encode returns the range as etcd writes it: an empty end for a single key,
// "\x00" for an open end, and "\x00" for the lowest key.
func Encode(start, end string) (key, rangeEnd []byte) {
	key = []byte(start)
	if start == "" {
		key = []byte{0}
	}
	switch end {
	case start + "\x00":
		return key, nil
	case "":
		return key, []byte{0}
	}
	return key, []byte(end)
}

// Decode reads what [Encode] writes.
func Decode(key, rangeEnd []byte) (start, end string) {
	start, end = string(key), string(rangeEnd)
	switch {
	case len(rangeEnd) == 0:
		end = start + "\x00"
	case end == "\x00":
		end = ""
	}
	if start == "\x00" && len(rangeEnd) > 0 {
		start = "" // no key lies below "\x00"
	}
	return start, end
}
