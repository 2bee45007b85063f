package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/shardwatch/shardwatch/internal/files/durable"
)

// connectionFlags are the flags that an environment variable or a context may set. None
// has a secret itself, only the path of its file.
func connectionFlags() []string {
	return []string{"endpoints", "timeout", "tls", "cacert", "cert", "key", "user", "password-file", "token-file", "zone"}
}

// variable returns the name of the environment variable of a flag.
func variable(flag string) string {
	return "CACHECTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// contexts are named sets of connection flags, in the form of the file of cachectl config.
type contexts struct {
	// Current is the name of the context in use; "": none.
	Current string `yaml:"current,omitempty"`
	// Contexts has the values of flags, by context and flag.
	Contexts map[string]map[string]string `yaml:"contexts"`
}

func (c contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// missing returns the error for the name of a context that does not exist.
func (c contexts) missing(name, file string) error {
	if len(c.Contexts) == 0 {
		return fmt.Errorf("no context %q: %s has none; cachectl config set %s --endpoints … creates it", name, file, name)
	}
	return fmt.Errorf("no context %q in %s: use %s", name, file, strings.Join(c.names(), ", "))
}

// contextsFile returns the path of the file of contexts; "": the process has none.
func (p Process) contextsFile() string {
	if file := p.Getenv("CACHECTL_CONFIG"); file != "" || p.ConfigDir == nil {
		return file
	}
	dir, err := p.ConfigDir()
	if err != nil {
		return "" // no configuration directory: flags and variables are enough
	}
	return filepath.Join(dir, "shardwatch", "cachectl.yaml")
}

// contexts reads the file of contexts, and returns its path. A missing file means that
// there are no contexts.
func (p Process) contexts() (c contexts, file string, err error) {
	if file = p.contextsFile(); file == "" {
		return c, file, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrNotExist) {
		return c, file, nil
	}
	if err != nil {
		return c, file, fmt.Errorf("contexts: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, file, fmt.Errorf("contexts in %s: %w", file, err)
	}
	for name, settings := range c.Contexts {
		for flag := range settings {
			if !slices.Contains(connectionFlags(), flag) {
				return c, file, fmt.Errorf("contexts in %s: %s: unknown setting %q: use %s", file, name, flag, strings.Join(connectionFlags(), ", "))
			}
		}
	}
	return c, file, nil
}

// save replaces the file of contexts.
func (c contexts) save(file string) error {
	if file == "" {
		return errors.New("no directory for contexts: set CACHECTL_CONFIG to a file")
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if err := errors.Join(durable.MakeDir(filepath.Dir(file)), durable.WriteFile(file, text)); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// Resolve sets connection flags that are not on the command line from their environment
// variables, or else from the context.
func (s *Session) Resolve(cmd *cobra.Command) error {
	if s.resolved {
		return nil
	}
	s.resolved = true
	settings, from, err := s.contextFor(cmd)
	if err != nil {
		return err
	}
	for _, name := range connectionFlags() {
		flag := cmd.Flags().Lookup(name)
		value, source := s.Process.Getenv(variable(name)), variable(name)
		if value == "" {
			value, source = settings[name], from+": "+name
		}
		if flag.Changed || value == "" {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// contextFor returns the settings of the context of a command, and its name for messages.
func (s *Session) contextFor(cmd *cobra.Command) (settings map[string]string, from string, err error) {
	name, named := s.context, cmd.Flags().Changed("context")
	if !named {
		name = s.Process.Getenv(variable("context"))
		named = name != ""
	}
	if named && name == "" { // --context "": none
		return nil, "", nil
	}
	c, file, err := s.Process.contexts()
	if err != nil {
		return nil, "", err
	}
	if !named {
		name = c.Current
	}
	settings, found := c.Contexts[name]
	if name != "" && !found {
		return nil, "", c.missing(name, file)
	}
	return settings, "context " + name, nil
}

// contextName matches the valid names of contexts.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// take returns settings, updated with the connection flags of the command line: flags with
// their default value are removed. Paths of files become absolute.
func (s *Session) take(flags *pflag.FlagSet, settings map[string]string) (map[string]string, error) {
	out := maps.Clone(settings)
	if out == nil {
		out = map[string]string{}
	}
	for _, name := range connectionFlags() {
		flag := flags.Lookup(name)
		if !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if name == "endpoints" {
			value = strings.Join(s.endpoints, ",")
		}
		switch name {
		case "cacert", "cert", "key", "password-file", "token-file":
			if value == "" {
				break
			}
			path, err := filepath.Abs(value)
			if err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
			value = path
		}
		if out[name] = value; value == "" || value == flag.DefValue {
			delete(out, name)
		}
	}
	return out, nil
}
