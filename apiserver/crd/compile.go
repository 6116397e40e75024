package crd

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// compiled is what becomes of a version's schema when an object needs it: the structure to read one, the rules to write one.
type compiled struct {
	structure sync.Once
	schema    *structuralschema.Structural
	err       error

	rules  sync.Once
	whole  validation.SchemaValidator
	status validation.SchemaValidator
	cel    *cel.Validator
	broken error
}

// preserves tells that the definition keeps whatever fields objects have.
func (c *custom) preserves() bool { return c.definition.Spec.PreserveUnknownFields }

// props are the version's schema in the library's form; nil if it has none. The result is the caller's own.
func (f *form) props() (*apiextensions.JSONSchemaProps, error) {
	declared := f.schema.Load()
	if declared == nil {
		return nil, nil
	}
	out := &apiextensions.JSONSchemaProps{}
	// The conversion may share memory with its argument, which is the store's.
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(declared.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", f.gvk, err)
	}
	return out, nil
}

// structural is the version's schema for pruning and defaulting; nil if it has none.
func (f *form) structural() (*structuralschema.Structural, error) {
	c := &f.compiled
	c.structure.Do(func() { c.schema, c.err = f.newStructural() })
	return c.schema, c.err
}

func (f *form) newStructural() (*structuralschema.Structural, error) {
	props, err := f.props()
	if props == nil || err != nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("compile the schema of %s: %w", f.gvk, err)
	}
	s = s.DeepCopy() // defaults are shared with the definition until here
	if err := defaulting.PruneDefaults(s); err != nil {
		return nil, fmt.Errorf("compile the schema of %s: %w", f.gvk, err)
	}
	return s, nil
}

// ruled makes sure that the validators are there.
func (f *form) ruled() (*compiled, error) {
	s, err := f.structural()
	if err != nil {
		return nil, err
	}
	c := &f.compiled
	c.rules.Do(func() {
		props, err := f.props()
		if err != nil {
			c.broken = err
			return
		}
		if props == nil {
			props = &apiextensions.JSONSchemaProps{}
		}
		if c.whole, _, c.broken = validation.NewSchemaValidator(props); c.broken != nil {
			return
		}
		var status *apiextensions.JSONSchemaProps
		if p, has := props.Properties["status"]; has {
			status = &p
		} else {
			status = &apiextensions.JSONSchemaProps{}
		}
		if c.status, _, c.broken = validation.NewSchemaValidator(status); c.broken != nil {
			return
		}
		c.cel = cel.NewValidator(s, true, celconfig.PerCallLimit)
	})
	return c, c.broken
}
