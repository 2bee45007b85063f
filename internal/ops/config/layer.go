package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix is the prefix of all environment variables of the program.
const EnvPrefix = "CACHENODE_"

// FileFlag is the flag that names the configuration file. The file cannot set it.
const FileFlag = "config"

// HelpAllFlag is the flag that shows the help with all flags. It is not a setting.
const HelpAllFlag = "help-all"

// Env returns the environment variable of a flag: CACHENODE_DATA_DIR for data-dir.
func Env(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Layered records the source of each setting.
type Layered struct {
	// Source of each setting that is not a default: "--name", "CACHENODE_NAME"
	// or "node.yaml:3".
	Source map[string]string
	// Unknown are variables that start with EnvPrefix but belong to no flag, sorted. They are not refused:
	// Kubernetes derives such names from Services.
	Unknown []string
}

// Layer completes fs, which has parsed the command line, from the environment (as os.Environ returns it) and
// from the YAML file that its FileFlag names. Flags override the environment, the environment the file, the
// file the defaults; a list is replaced as a whole. An empty variable counts as not set.
//
// The error names all invalid settings, each with its place.
func Layer(fs *pflag.FlagSet, environ []string) (Layered, error) {
	l := Layered{Source: map[string]string{}}
	fs.Visit(func(f *pflag.Flag) { l.Source[f.Name] = "--" + f.Name })

	var errs []error
	names := append(settings(fs), FileFlag)
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvPrefix) || value == "" {
			continue
		}
		i := slices.IndexFunc(names, func(flag string) bool { return Env(flag) == name })
		if i < 0 {
			l.Unknown = append(l.Unknown, name)
			continue
		}
		errs = append(errs, l.set(fs, entry{flag: names[i], value: value, place: name}))
	}

	if f := fs.Lookup(FileFlag); f != nil && f.Value.String() != "" {
		errs = append(errs, l.file(fs, f.Value.String()))
	}
	return l, errors.Join(errs...)
}

// file applies the settings of the file at path, except those that a higher layer has set.
func (l *Layered) file(fs *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path) //nolint:gosec // The operator names the file.
	if err != nil {
		return fmt.Errorf("--%s: %w", FileFlag, err)
	}
	entries, err := parseFile(path, data, fs)
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, l.set(fs, e))
	}
	return errors.Join(errs...)
}

// set gives a flag its value, unless it has been set before.
func (l *Layered) set(fs *pflag.FlagSet, e entry) error {
	if _, done := l.Source[e.flag]; done {
		return nil
	}
	l.Source[e.flag] = e.place
	f := fs.Lookup(e.flag)
	f.Changed = true
	if list, ok := f.Value.(pflag.SliceValue); ok && e.list != nil {
		return list.Replace(e.list)
	}
	before := f.Value.String()
	if err := f.Value.Set(e.value); err != nil {
		_ = f.Value.Set(before) // pflag stores a zero, which Validate would report as a second mistake
		return fmt.Errorf("%s: %s: %w", e.place, e.flag, plain(err, e.value))
	}
	return nil
}

// plain replaces errors of strconv and time, which name Go functions, by plain text.
func plain(err error, value string) error {
	if strings.HasPrefix(err.Error(), "strconv.ParseBool") {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	if strings.HasPrefix(err.Error(), "strconv.") {
		return fmt.Errorf("%q is not a whole number", value)
	}
	if strings.HasPrefix(err.Error(), "time: ") {
		return fmt.Errorf("%q is not a duration: write one such as 10m or 1.5s", value)
	}
	return err
}

// settings returns the names of the flags that can be set everywhere, in the order of fs: all but FileFlag and
// the flags for help.
func settings(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != FileFlag && f.Name != "help" && f.Name != HelpAllFlag {
			names = append(names, f.Name)
		}
	})
	return names
}
