package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// Limits of the functions of templates.
const (
	maxText  = 64 << 10 // bytes of a text that a function takes or returns
	maxList  = 1000     // elements of a list or map that a function returns
	maxCount = 1000     // a number that a function repeats or indents by
	maxCalls = 20_000   // for one message
	maxTime  = 2 * time.Second
)

var errBudget = errors.New("it does too much")

// A budget is what the functions of one message may take.
type budget struct {
	calls int
	until time.Time
}

func newBudget() *budget { return &budget{until: time.Now().Add(maxTime)} }

// refused are functions of sprig that read the machine, resolve names, or take
// much time or memory for a short text.
func refused() []string {
	return []string{
		"env", "expandenv", "getHostByName", "until", "untilStep", "seq", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert",
		"genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "buildCustomCert", "derivePassword", "bcrypt", "htpasswd", "encryptAES",
		"decryptAES", "fail", "randBytes", "randAlphaNum", "randAlpha", "randAscii", "randNumeric", "wrap", "wrapWith", "mustToPrettyJson",
	}
}

// functions are those that templates may call, with the limits of the budget.
func (b *budget) functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	maps.DeleteFunc(all, func(name string, _ any) bool { return slices.Contains(refused(), name) })
	all["print"] = fmt.Sprint
	all["println"] = fmt.Sprintln
	all["printf"] = fmt.Sprintf
	all["html"] = template.HTMLEscaper
	all["js"] = template.JSEscaper
	all["urlquery"] = template.URLQueryEscaper
	all["replace"] = func(old, with, s string) (string, error) {
		if len(s)+(strings.Count(s, old))*len(with) > maxText {
			return "", errTooLong
		}
		return strings.ReplaceAll(s, old, with), nil
	}
	all["toJson"] = toJSON
	all["toRawJson"] = toJSON
	for name, f := range all {
		all[name] = b.limit(f)
	}
	return all
}

func toJSON(v any) (string, error) {
	out, err := json.Marshal(v)
	return string(out), err
}

// limit wraps a function so that it refuses long texts and large counts, and
// returns no more than a limit.
func (b *budget) limit(f any) any {
	inner := reflect.ValueOf(f)
	typ := inner.Type()
	in := make([]reflect.Type, typ.NumIn())
	for i := range in {
		in[i] = typ.In(i)
	}
	failure := reflect.TypeFor[error]()
	wrapped := reflect.FuncOf(in, []reflect.Type{typ.Out(0), failure}, typ.IsVariadic())
	return reflect.MakeFunc(wrapped, func(args []reflect.Value) []reflect.Value {
		err := b.spend(args)
		var out []reflect.Value
		if err == nil {
			if typ.IsVariadic() {
				out = inner.CallSlice(args)
			} else {
				out = inner.Call(args)
			}
			err = fits(out[0])
			if len(out) == 2 && !out[1].IsNil() {
				err, _ = out[1].Interface().(error)
			}
		}
		if err != nil {
			return []reflect.Value{reflect.Zero(typ.Out(0)), reflect.ValueOf(&err).Elem()}
		}
		return []reflect.Value{out[0], reflect.Zero(failure)}
	}).Interface()
}

// spend counts a call, and looks at what it is given.
func (b *budget) spend(args []reflect.Value) error {
	if b.calls++; b.calls > maxCalls || time.Now().After(b.until) {
		return errBudget
	}
	total := 0
	for _, a := range args {
		total += weight(a, 0)
		for a.Kind() == reflect.Interface && !a.IsNil() {
			a = a.Elem()
		}
		if a.CanInt() && a.Type().PkgPath() == "" && (a.Int() > maxCount || a.Int() < -maxCount) && a.Kind() == reflect.Int {
			return fmt.Errorf("the number %d is too large", a.Int())
		}
	}
	if total > maxText {
		return errTooLong
	}
	return nil
}

// weight is about how long the texts in a value are.
func weight(v reflect.Value, depth int) int {
	if depth > 20 {
		return maxText + 1
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return weight(v.Elem(), depth+1)
	case reflect.String:
		return v.Len()
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Len()
		}
		n := 0
		for i := range v.Len() {
			n += 1 + weight(v.Index(i), depth+1)
		}
		return n
	case reflect.Map:
		n := 0
		for it := v.MapRange(); it.Next(); {
			n += 1 + weight(it.Key(), depth+1) + weight(it.Value(), depth+1)
		}
		return n
	}
	return 1
}

func fits(v reflect.Value) error {
	for (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if v.Len() > maxText {
			return errTooLong
		}
	case reflect.Slice, reflect.Array, reflect.Map:
		if v.Len() > maxList {
			return errTooLong
		}
	}
	return nil
}
