package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Backup copies etcd's data. The API server is stopped during the copy.
func (c *Cluster) Backup(ctx context.Context, dir string) error {
	return c.offline(ctx, func() error { return copyAll(ctx, c.file("etcd-data"), dir) })
}

// Restore puts back what Backup has copied, as an administrator does after a
// disaster: what came later is undone, and versions go backwards.
func (c *Cluster) Restore(ctx context.Context, dir string) error {
	return c.offline(ctx, func() error {
		if err := os.RemoveAll(c.file("etcd-data")); err != nil {
			return fmt.Errorf("remove the data of etcd: %w", err)
		}
		return copyAll(ctx, dir, c.file("etcd-data"))
	})
}

// offline does something while neither API server nor etcd run.
func (c *Cluster) offline(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := errors.Join(c.HaltAPI(), c.etcd.Stop(syscall.SIGTERM, 4*stopGrace)); err != nil {
		return fmt.Errorf("stop cluster %q: %w", c.Name, err)
	}
	if err := do(); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	return c.runAPI(ctx)
}

func copyAll(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %q: %w: %s", from, err, out)
	}
	return nil
}
