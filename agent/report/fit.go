package report

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// A value above the link's message size would block all others. These limits,
// with those of a report, are below that size.
const (
	mostValue = 512 << 10 // bytes of one value
	mostList  = 96 << 10  // bytes of one list or text of a value that is too large
)

// fitting returns a value that can be sent: a field that is too large is
// truncated, with a mark for users.
func fitting(m proto.Message) proto.Message {
	if proto.Size(m) <= mostValue {
		return m
	}
	m = proto.Clone(m)
	switch v := m.(type) {
	case *linkv1.AppReport:
		v.Warnings, v.Excluded = firstTexts(v.GetWarnings()), firstTexts(v.GetExcluded())
		v.Error, v.HealthCause = cut(v.GetError()), cut(v.GetHealthCause())
		for size, n := 0, 0; n < len(v.GetNotes()); n++ {
			if size += proto.Size(v.GetNotes()[n]); size > mostList {
				v.Notes = v.GetNotes()[:n]
			}
		}
	case *linkv1.Resource:
		v.Diff, v.Message, v.Links = cut(v.GetDiff()), cut(v.GetMessage()), firstTexts(v.GetLinks())
		for _, c := range v.GetInfo() {
			c.Value = cut(c.GetValue())
		}
		if proto.Size(v) > mostValue {
			v.Info = nil
		}
	case *linkv1.OperationReport:
		v.Message = cut(v.GetMessage())
		if proto.Size(v) > mostValue {
			v.Message += "; the results of its objects are too long to be listed"
			v.Results = nil
		}
	}
	return m
}

func cut(text string) string {
	if len(text) <= mostList {
		return text
	}
	return strings.ToValidUTF8(text[:mostList], "") + "…"
}

// firstTexts returns the first texts of a list, and the number of the others.
func firstTexts(list []string) []string {
	size := 0
	for n, s := range list {
		if size += len(s); size > mostList {
			return append(list[:n:n], fmt.Sprintf("and %d more", len(list)-n))
		}
	}
	return list
}

// addClosed puts as many closed tombstones into a report as fit into a message.
func (o *Outbox) addClosed(r *linkv1.ReportUp) (size int) {
	n := 0
	for n < len(o.closed) && n < maxClosed && size < most {
		size += proto.Size(o.closed[n]) + 4
		n++
	}
	r.Closed, o.closed = o.closed[:n:n], o.closed[n:]
	if o.pace.pressing = len(o.closed) > 0; !o.pace.pressing {
		o.closed = nil
	}
	return size
}
