package ownership

import "testing"

func TestTransitions(t *testing.T) {
	t.Parallel()
	events := []Event{Acquire, Adopt, Applied, Delete, Retain, Release}
	for s := Free; s <= Deleting; s++ {
		for _, e := range events {
			to, ok := Next(s, e)
			if ok && (to == Free) != (e == Release) {
				t.Errorf("from %d event %d leads to %d: only a release makes an object free", s, e, to)
			}
			if s == Free && ok != (e == Acquire) {
				t.Errorf("a free object takes event %d: %v", e, ok)
			}
		}
	}
	if _, ok := Next(Deleting, Adopt); ok {
		t.Error("an object is adopted while it is being deleted")
	}
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	may := Interest{App: "b", Permitted: true, Listed: true}
	lists, released := Interest{App: "a", Permitted: true, Listed: true}, Interest{App: "a", Permitted: true}
	for name, c := range map[string]struct {
		o        Object
		c        Interest
		owner    Interest
		want     Object
		decision Decision
	}{
		"TRK-07 a free object belongs to the first permitted operation":        {Object{}, may, Interest{}, Object{Owned, "b"}, Granted},
		"SEC-D2 what a project forbids is not acquired":                        {Object{}, Interest{App: "b", Listed: true}, Interest{}, Object{}, Denied},
		"TRK-07 an application that is being deleted acquires nothing":         {Object{}, Interest{App: "b", Permitted: true, Leaving: true}, Interest{}, Object{}, Denied},
		"TRK-07 an owner that lists the object keeps it":                       {Object{Owned, "a"}, may, lists, Object{Owned, "a"}, Conflict},
		"TRK-07 an owner that lists it no more releases it":                    {Object{Owned, "a"}, may, released, Object{Adopted, "b"}, Granted},
		"SEC-D2 it is not released to an application that must not have it":    {Object{Owned, "a"}, Interest{App: "b", Listed: true}, released, Object{Owned, "a"}, Denied},
		"TRK-07 an object that is being deleted is not acquired by another":    {Object{Deleting, "a"}, may, released, Object{Deleting, "a"}, Conflict},
		"TRK-07 what was adopted stays so until it is written":                 {Object{Adopted, "b"}, may, may, Object{Adopted, "b"}, Granted},
		"TRK-07 an owner that was only adopting releases like any other owner": {Object{Adopted, "a"}, may, released, Object{Adopted, "b"}, Granted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, v := c.o.Acquire(c.c, c.owner)
			if got != c.want || v != c.decision {
				t.Errorf("%+v, %d, want %+v, %d", got, v, c.want, c.decision)
			}
		})
	}
}

func TestSuccessor(t *testing.T) {
	t.Parallel()
	rendered := Interest{App: "r", Permitted: true, Listed: true}
	forbidden := Interest{App: "f", Listed: true, Accepted: true}
	leaving := Interest{App: "l", Permitted: true, Listed: true, Accepted: true, Leaving: true}
	synced := Interest{App: "s", Permitted: true, Listed: true, Accepted: true}
	for name, c := range map[string]struct {
		claims []Interest
		want   string
	}{
		"TRK-07 an application that was never synced does not adopt": {[]Interest{rendered}, ""},
		"SEC-D2 nor is one whose project forbids the object":         {[]Interest{forbidden}, ""},
		"TRK-07 nor is one that is being deleted":                    {[]Interest{leaving}, ""},
		"TRK-07 the first that has accepted the object is":           {[]Interest{rendered, forbidden, leaving, synced}, "s"},
		"TRK-07 the owner itself is not":                             {[]Interest{{App: "a", Permitted: true, Listed: true, Accepted: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := Successor("a", c.claims); got.App != c.want {
				t.Errorf("successor %q, want %q", got.App, c.want)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	o, ok := Object{}.Restore("a", false)
	if !ok || o != (Object{Owned, "a"}) {
		t.Errorf("%+v, %v", o, ok)
	}
	if again, ok := o.Restore("b", true); ok || again != o {
		t.Errorf("a second record counts: %+v, %v", again, ok)
	}
	if o, ok := (Object{}).Restore("a", true); !ok || o != (Object{Adopted, "a"}) {
		t.Errorf("%+v, %v", o, ok)
	}
}
