package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// ExplainFlagError adds the nearest known flag to an error about an unknown flag.
func ExplainFlagError(fs *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), append(settings(fs), FileFlag), "--"))
}

// didYouMean suggests the known word nearest to word; "": none is near.
func didYouMean(word string, known []string, mark string) string {
	best, at := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", mark, best)
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
