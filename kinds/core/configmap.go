package core

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.ConfigMap]{
	Names:    kind.Names{Plural: "configmaps", Short: []string{"cm"}},
	Validate: validateConfigMap,
	Columns: []kind.Column[corev1.ConfigMap]{
		{Name: "Data", Description: "Number of keys.", Value: func(c *corev1.ConfigMap, _ time.Time) any { return int64(len(c.Data) + len(c.BinaryData)) }},
	},
})

const frozen = "field is immutable when `immutable` is set"

func validateConfigMap(c, old *corev1.ConfigMap) field.ErrorList {
	var p problems
	size := 0
	for key, value := range c.Data {
		at := field.NewPath("data").Key(key)
		p.each(at, key, validation.IsConfigMapKey(key))
		if _, twice := c.BinaryData[key]; twice {
			p.invalid(at, key, "duplicate of key present in binaryData")
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		p.each(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		p.add(field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	if old != nil && isTrueValue(old.Immutable) {
		checkFrozen(&p, isTrueValue(c.Immutable), map[string]bool{
			"data": reflect.DeepEqual(c.Data, old.Data), "binaryData": reflect.DeepEqual(c.BinaryData, old.BinaryData),
		})
	}
	return p.list
}

// checkFrozen refuses changes of an object that was made immutable.
func checkFrozen(p *problems, stays bool, same map[string]bool) {
	if !stays {
		p.forbidden(field.NewPath("immutable"), frozen)
	}
	for name, ok := range same {
		if !ok {
			p.forbidden(field.NewPath(name), frozen)
		}
	}
}

func isTrueValue(b *bool) bool { return b != nil && *b }
