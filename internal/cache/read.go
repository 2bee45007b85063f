package cache

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// At returns the state at exactly revision, or at the cache's progress when it
// is 0. It waits for progress when the revision is ahead; it fails with a
// *kv.CompactedError when the revision is no longer kept, with ErrRetired,
// ErrNotReady, and the context's error.
func (c *Cache) At(ctx context.Context, revision kv.Revision) (*keytree.Snapshot, error) {
	c.wakeups.use()
	if c.view.Load().progress < revision {
		if err := c.WaitProgress(ctx, revision); err != nil {
			return nil, err
		}
	}
	v := c.view.Load()
	switch {
	case v.retired:
		return nil, ErrRetired
	case !v.ready || c.cfg.Stateless:
		return nil, ErrNotReady
	case revision == 0:
		return &keytree.Snapshot{Revision: v.progress, Root: v.root}, nil
	}
	root, oldest := c.rootAt(v, revision)
	if root == nil {
		if c.view.Load().retired { // it may have been released meanwhile
			return nil, ErrRetired
		}
		return nil, &kv.CompactedError{Requested: revision, Floor: oldest}
	}
	return &keytree.Snapshot{Revision: revision, Root: root}, nil
}

// rootAt returns the state at a revision that v has reached, or nil and the
// oldest revision whose state is kept.
func (c *Cache) rootAt(v *view, revision kv.Revision) (root *keytree.Tree, oldest kv.Revision) {
	if v.changed <= revision {
		return v.root, 0
	}
	if root, oldest = c.roots.At(revision); root == nil && oldest == 0 {
		oldest = v.changed
	}
	return root, oldest
}
