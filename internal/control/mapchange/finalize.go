package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func (r Finalize) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	level := r.Level
	if level == 0 {
		for i := range c.Members {
			if m := &c.Members[i]; m.State != shard.Left {
				level = max(level, m.Level)
			}
		}
	}
	if level <= c.Map.Finalized || level < shard.LevelSettings {
		return nil, nil, nil
	}
	if level > shard.Level {
		return nil, nil, refused("level", "this node understands feature levels up to %d, not %d: upgrade it", shard.Level, level)
	}
	var lacking []string
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case m.State == shard.Left || m.Level >= level:
		case m.State == shard.Alive || m.State == shard.Suspect:
			lacking = append(lacking, fmt.Sprintf("%s runs %s: upgrade it", m.Name, softwareOf(m)))
		default:
			lacking = append(lacking, fmt.Sprintf("%s is away and ran %s: upgrade it and start it, or wait until the cluster has forgotten it", m.Name, softwareOf(m)))
		}
	}
	if len(c.Voters) == 0 {
		return nil, nil, refused("level", "no voter answers, so it is not known whether all of them understand level %d: see cachectl voters", level)
	}
	for _, v := range c.Voters {
		if !slices.ContainsFunc(c.Members, func(m shard.Member) bool { return m.Name == v }) {
			lacking = append(lacking, fmt.Sprintf("voter %s was not seen: start it, or wait until another node has its vote", v))
		}
	}
	if len(lacking) > 0 {
		return nil, nil, refused("level", "not all members are known to understand feature level %d: %s", level, strings.Join(lacking, "; "))
	}
	return shard.Finalize{Level: level}, nil, nil
}

// softwareOf describes the software of a member that does not understand a level.
func softwareOf(m *shard.Member) string {
	version := m.Version
	if version == "" {
		version = "older software"
	}
	return fmt.Sprintf("%s, which understands level %d", version, m.Level)
}
