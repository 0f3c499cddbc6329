package template

import (
	"reflect"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// stopped is the error of a run that has ended.
func stopped() error {
	return fault.With(fault.New(fault.Exceeded, "the templates took too long"), "", "use fewer loops in the templates of this set")
}

// A budget is what one application may use.
type budget struct {
	ended func() error // of the run's context
	most  time.Duration
	spent time.Duration // by texts that are filled
	began time.Time     // of the text that is filled

	steps   int
	written int
	// exceeded is the bound that ended a template; nil: none.
	exceeded error
}

// measure counts the time until the function that it returns is called.
func (b *budget) measure() func() {
	b.began = time.Now()
	return func() { b.spent += time.Since(b.began) }
}

// late reports whether the run must end.
func (b *budget) late() bool {
	return b.ended() != nil || b.most > 0 && b.spent+time.Since(b.began) > b.most
}

// step counts a call of a function or a round of a loop.
func (b *budget) step() error {
	if b.steps++; b.steps > maxSteps {
		return b.exceed("the templates of one application take more than %d steps", maxSteps)
	}
	if b.steps&0x3f == 1 && b.late() {
		b.exceeded = stopped()
		return b.exceeded
	}
	return nil
}

// write counts bytes of output.
func (b *budget) write(n int) error {
	if b.written += n; b.written > maxOutput {
		return b.exceed("the texts of one application have more than %d bytes", maxOutput)
	}
	return nil
}

func (b *budget) exceed(format string, args ...any) error {
	b.exceeded = fault.New(fault.Exceeded, format, args...)
	return b.exceeded
}

// weigh measures a value as it would be printed: bytes of texts and number of
// values, where a value counts as often as it is reached. That bounds values
// which contain one another. It ends at the bounds.
func weigh(v reflect.Value) (weight, depth int) {
	m := meter{left: maxValue + 1}
	m.add(v, 1)
	return maxValue + 1 - m.left, m.deepest
}

type meter struct{ left, deepest int }

func (m *meter) add(v reflect.Value, depth int) {
	m.deepest = max(m.deepest, depth)
	if m.left--; m.left <= 0 || depth > maxDepth {
		return
	}
	switch v.Kind() {
	case reflect.String:
		m.left -= v.Len()
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			m.left -= v.Len()
			return
		}
		for i := 0; i < v.Len() && m.left > 0; i++ {
			m.add(v.Index(i), depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); m.left > 0 && it.Next(); {
			m.add(it.Key(), depth+1)
			m.add(it.Value(), depth+1)
		}
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			m.add(v.Elem(), depth)
		}
	case reflect.Struct:
		m.left -= v.NumField()
	default:
	}
}

// admit checks a value that a function returns.
func (b *budget) admit(v reflect.Value) error {
	weight, depth := weigh(v)
	switch {
	case weight > maxValue:
		return b.exceed("a value of the template has more than %d bytes or values", maxValue)
	case depth > maxDepth:
		return b.exceed("a value of the template is nested more than %d deep", maxDepth)
	}
	return nil
}

// Weight is how many bytes and values a value has, each as often as it is
// reached; at most a little more than one value of a template may have.
func Weight(v any) int {
	weight, _ := weigh(reflect.ValueOf(v))
	return weight
}
