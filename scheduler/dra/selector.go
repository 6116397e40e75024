package dra

import (
	"context"
	"fmt"

	"k8s.io/dynamic-resource-allocation/cel"
)

// verdict is what a selector says of a device.
type verdict struct {
	matches bool
	err     error
}

// selectors compiles CEL expressions and remembers what they say: devices are immutable.
type selectors struct{ cache *cel.Cache }

// compiledKept is how many compiled expressions are kept.
const compiledKept = 256

func newSelectors() selectors {
	return selectors{cel.NewCache(compiledKept, cel.Features{EnableConsumableCapacity: true})}
}

// match evaluates an expression about a device. Its cost is limited by the library as the API defines.
func (s selectors) match(expression string, d *device) (bool, error) {
	v, known := d.verdicts[expression]
	if !known {
		v = s.evaluate(expression, d)
		d.verdicts[expression] = v
	}
	return v.matches, v.err
}

func (s selectors) evaluate(expression string, d *device) verdict {
	program := s.cache.GetOrCompile(expression)
	if program.Error != nil {
		return verdict{err: fmt.Errorf("CEL compile error: %w", program.Error)}
	}
	ok, _, err := program.DeviceMatches(context.Background(), cel.Device{Driver: d.id.Driver, AllowMultipleAllocations: d.spec.AllowMultipleAllocations, Attributes: d.spec.Attributes, Capacity: d.spec.Capacity})
	if err != nil {
		return verdict{err: fmt.Errorf("CEL runtime error: %w", err)}
	}
	return verdict{matches: ok}
}
