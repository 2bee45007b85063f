package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

// NewConfigCommand returns the command that edits contexts.
func NewConfigCommand(s *Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "config",
		SuggestFor: []string{"context", "contexts"},
		Short:      "Manage contexts: named connections to clusters",
		Long: `config manages contexts: a context is a named set of connection flags. config use
selects the current context; --context or CACHECTL_CONTEXT selects another one for one
command, and --context "" none. Flags override environment variables, and these
override the context.

The file is shardwatch/cachectl.yaml in the user's configuration directory (~/.config
on Linux), or the file in CACHECTL_CONFIG. Only its owner may read it. It holds no
secrets, only the paths of their files.`,
		Example: `  cachectl config set prod --endpoints node-1:7400,node-2:7400 --cacert ca.pem
  cachectl config use prod
  cachectl status
  cachectl --context test status`,
		Args: KnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigListCommand(s), newConfigCurrentCommand(s), newConfigUseCommand(s), newConfigSetCommand(s), newConfigDeleteCommand(s))
	return cmd
}

type contextJSON struct {
	Name     string            `json:"name"`
	Current  bool              `json:"current"`
	Settings map[string]string `json:"settings"`
}

func newConfigListCommand(s *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts; * marks the current one",
		Args:  Takes(),
		RunE: func(*cobra.Command, []string) error {
			c, _, err := s.Process.contexts()
			if err != nil {
				return err
			}
			t, out := &Table{}, []contextJSON{}
			t.Row("", "NAME", "ENDPOINTS", "FLAGS")
			for _, name := range c.names() {
				settings, mark := c.Contexts[name], ""
				if name == c.Current {
					mark = "*"
				}
				var flags []string
				for _, flag := range connectionFlags()[1:] {
					if v := settings[flag]; v != "" {
						flags = append(flags, "--"+flag+"="+v)
					}
				}
				t.Row(mark, name, OrDash(settings["endpoints"]), OrDash(strings.Join(flags, " ")))
				out = append(out, contextJSON{name, name == c.Current, settings})
			}
			if s.Structured() {
				return s.Document(struct {
					Contexts []contextJSON `json:"contexts"`
				}{out})
			}
			return t.Write(s.Process.Stdout)
		},
	}
}

func newConfigCurrentCommand(s *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "current",
		Short: "Print the name of the current context",
		Args:  Takes(),
		RunE: func(*cobra.Command, []string) error {
			c, _, err := s.Process.contexts()
			if err == nil && c.Current == "" {
				err = errors.New("no context is in use: cachectl config use NAME")
			}
			if err != nil {
				return err
			}
			return Lines(s.Process.Stdout, c.Current)
		},
	}
}

func newConfigUseCommand(s *Session) *cobra.Command {
	return s.changesContexts(&cobra.Command{
		Use:   "use NAME",
		Short: "Select the current context",
	}, func(_ *cobra.Command, c *contexts, name, file string) error {
		if c.Contexts[name] == nil {
			return c.missing(name, file)
		}
		c.Current = name
		return nil
	})
}

func newConfigDeleteCommand(s *Session) *cobra.Command {
	return s.changesContexts(&cobra.Command{
		Use:        "delete NAME",
		SuggestFor: []string{"remove", "rm"},
		Short:      "Delete a context; after the current one is deleted, none is selected",
	}, func(_ *cobra.Command, c *contexts, name, file string) error {
		if c.Contexts[name] == nil {
			return c.missing(name, file)
		}
		if delete(c.Contexts, name); c.Current == name {
			c.Current = ""
		}
		return nil
	})
}

func newConfigSetCommand(s *Session) *cobra.Command {
	return s.changesContexts(&cobra.Command{
		Use:        "set NAME --endpoints HOST:PORT,... [FLAGS]",
		SuggestFor: []string{"add", "create"},
		Short:      "Create a context, or change its flags",
		Long: `set creates a context from the connection flags on the command line, or changes these
flags in an existing one: a flag set to its default is removed. The first context
becomes the current one.`,
		Example: `  cachectl config set prod --endpoints node-1:7400 --cacert ca.pem --token-file token
  cachectl config set prod --token-file "" --timeout 1m`,
	}, func(cmd *cobra.Command, c *contexts, name, _ string) error {
		if !contextName.MatchString(name) {
			return fmt.Errorf("%q is not a name: use letters, digits, '.', '_' and '-'", name)
		}
		if cmd.Flags().Changed("endpoints") {
			if err := (client.Config{Endpoints: s.endpoints}).Validate(); err != nil {
				return fmt.Errorf("--endpoints: %w", err)
			}
		}
		settings, err := s.take(cmd.Flags(), c.Contexts[name])
		if err != nil {
			return err
		}
		if settings["endpoints"] == "" {
			return errors.New("--endpoints is missing: a context names a cluster")
		}
		if len(c.Contexts) == 0 {
			c.Contexts, c.Current = map[string]map[string]string{}, name
		}
		c.Contexts[name] = settings
		return nil
	})
}

// changesContexts makes cmd change a context, which its argument names.
func (s *Session) changesContexts(cmd *cobra.Command, change func(cmd *cobra.Command, c *contexts, name, file string) error) *cobra.Command {
	cmd.Args = Takes("NAME")
	cmd.ValidArgsFunction = s.CompleteContexts
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, file, err := s.Process.contexts()
		if err != nil {
			return err
		}
		if err := change(cmd, &c, args[0], file); err != nil {
			return Usage(cmd, err)
		}
		return c.save(file)
	}
	return cmd
}

// CompleteContexts completes the names of contexts.
func (s *Session) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, _, _ := s.Process.contexts() // a completion shows no errors
	return c.names(), cobra.ShellCompDirectiveNoFileComp
}
