package generate

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// checkKeys refuses a selector whose keys no label could have. Parameters are
// selected by such keys, too; their values may be any text (ASET-08).
func checkKeys(s hub.LabelSelector) error {
	if err := s.Check(); err != nil {
		return err
	}
	for key := range s.Labels {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	for _, e := range s.Expressions {
		if err := checkKey(e.Key); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fault.New(fault.Invalid, "%q is no key of a label: %s", key[:min(len(key), 100)], strings.Join(problems, "; "))
	}
	return nil
}

// checkLabels refuses a selector of labels that no object could have. Where a
// placeholder has become something else than a label, selecting nothing would
// delete applications.
func checkLabels(s hub.LabelSelector) error {
	if err := checkKeys(s); err != nil {
		return err
	}
	for _, value := range s.Labels {
		if err := checkValue(value); err != nil {
			return err
		}
	}
	for _, e := range s.Expressions {
		for _, value := range e.Values {
			if err := checkValue(value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkValue(value string) error {
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fault.New(fault.Invalid, "%q is no value of a label: %s", value[:min(len(value), 100)], strings.Join(problems, "; "))
	}
	return nil
}
