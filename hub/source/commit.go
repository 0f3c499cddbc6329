package source

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/capstan-cd/capstan/hub"
)

const (
	maxCommit  = 1 << 20 // bytes of a commit or tag that is read
	maxMessage = 500     // characters of a commit's message that are kept
	maxPeel    = 16      // tags of tags that are followed
)

// A commit is what is used of one.
type commit struct {
	hash   plumbing.Hash
	tree   plumbing.Hash
	parent plumbing.Hash // the first one; zero: none
	when   time.Time
	info   hub.CommitInfo
}

// commit reads a commit; a tag is peeled.
func (o *odb) commit(h plumbing.Hash) (commit, error) {
	for range maxPeel {
		obj, err := o.read(h, maxCommit)
		if err != nil {
			return commit{}, err
		}
		switch obj.kind {
		case plumbing.CommitObject:
			return parseCommit(h, obj)
		case plumbing.TagObject:
			line, _, _ := strings.Cut(string(obj.data[:min(len(obj.data), 48)]), "\n")
			target, ok := strings.CutPrefix(line, "object ")
			if !ok || !plumbing.IsHash(target) {
				return commit{}, fmt.Errorf("%w: malformed tag %s", errDamaged, h)
			}
			h = plumbing.NewHash(target)
		default:
			return commit{}, errNotCommit
		}
	}
	return commit{}, errNotCommit
}

func parseCommit(h plumbing.Hash, obj rawObject) (commit, error) {
	var mem plumbing.MemoryObject
	mem.SetType(plumbing.CommitObject)
	if _, err := mem.Write(obj.data); err != nil {
		return commit{}, fmt.Errorf("commit %s: %w", h, err)
	}
	var c object.Commit
	if err := c.Decode(&mem); err != nil {
		return commit{}, fmt.Errorf("%w: commit %s: %w", errDamaged, h, err)
	}
	out := commit{hash: h, tree: c.TreeHash, when: c.Committer.When, info: hub.CommitInfo{
		Author:  author(c.Author),
		Message: shorten(c.Message, maxMessage),
		At:      c.Committer.When.UTC(),
	}}
	if len(c.ParentHashes) > 0 {
		out.parent = c.ParentHashes[0]
	}
	return out, nil
}

func author(s object.Signature) string {
	name, mail := shorten(s.Name, 200), shorten(s.Email, 200)
	if mail == "" {
		return name
	}
	return strings.TrimSpace(name + " <" + mail + ">")
}

// shorten returns the first characters of text that may be in any encoding.
func shorten(s string, limit int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, string(utf8.RuneError)))
	s = strings.ReplaceAll(s, "\x00", "")
	for i := range s {
		if limit == 0 {
			return s[:i]
		}
		limit--
	}
	return s
}

// ancestors gives up to limit first parents of a commit, nearest first; those
// that cannot be read are left out.
func (o *odb) ancestors(h plumbing.Hash, limit int) ([]plumbing.Hash, error) {
	var all []plumbing.Hash
	for range limit {
		c, err := o.commit(h)
		if err != nil {
			return nil, err
		}
		if c.parent.IsZero() {
			return all, nil
		}
		h = c.parent
		all = append(all, h)
	}
	return all, nil
}

// errNotCommit says that an object is there and is no commit.
var errNotCommit = errors.New("the object is not a commit")
