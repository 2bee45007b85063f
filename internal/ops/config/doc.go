// Package config has the settings for operators: those of a node ([Config]) and those of the cluster that
// `cachenode dev` starts ([Dev]).
//
// Read [Config] first. Its settings are defined once, in [Config.Flags]: the same flag set parses the command
// line, the CACHENODE_… environment and the YAML file ([Layer]), and prints them ([Print]), so the three cannot
// diverge. [Config.Validate] reports all mistakes together, each with its flag.
//
// Values here are plain data: no goroutine, no logger. A Config must not be used while it is being parsed;
// afterwards it is a value that may be copied and shared.
package config
