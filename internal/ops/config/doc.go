// Package config has the settings of operators: those of a node ([Config]) and of the cluster that
// `cachenode dev` starts ([Dev]).
//
// Read [Config] first. Its settings exist once, in [Config.Flags]: the same
// flag set reads the command line, the CACHENODE_… environment and the YAML file
// ([Layer]) and writes them out again ([Print]), so the three cannot diverge.
// [Config.Validate] names every mistake at once, each with its flag.
//
// Values here are plain data: no goroutine, no logger. A Config is not safe for
// use while it is being read in, and is a value that may be copied and shared
// afterwards.
package config
