// Package storage declares the kinds of the group storage.k8s.io: classes, and what CSI drivers, their nodes and attachments are known by.
package storage

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is storage.k8s.io.
var Group = kind.Group{Name: "storage.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{storagev1.AddToScheme}}

// The limits of parameters: their number and all keys and values together.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

func validateParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	size := 0
	for k, v := range parameters {
		if k == "" {
			errs = append(errs, field.Invalid(path, k, "field can not be empty."))
		}
		size += len(k) + len(v)
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(path, "", maxParametersSize))
	}
	return errs
}

// validateProvisioner checks the name of who provisions: a qualified name in any case.
func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rule.QualifiedName(strings.ToLower(name), path)
}

// maxDriverName is the longest name of a CSI driver, by the CSI specification.
const maxDriverName = 63

func validateDriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, "", maxDriverName))
	}
	return append(errs, rule.Invalid(name, path, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}
