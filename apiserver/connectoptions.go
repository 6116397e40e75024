package apiserver

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// connectOptions reads the query of a Connect into the options that its definition names, for admission to judge; nil if it names none. path is what
// follows the subresource in the URL.
func connectOptions(sub *kind.ErasedSub, query url.Values, path string) (runtime.Object, error) {
	if sub.New == nil {
		return nil, nil
	}
	options := sub.New()
	options.GetObjectKind().SetGroupVersionKind(sub.Body)
	fields := reflect.ValueOf(options).Elem()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		values := query[name]
		if name == "path" && path != "" {
			values = []string{path}
		}
		if name == "" || len(values) == 0 {
			continue
		}
		if err := setOption(fields.Field(i), values); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s=%s: %v", name, strings.Join(values, ","), err))
		}
	}
	return options, nil
}

// setOption sets one field from a query's values: a list takes all, anything else the first. Booleans are true unless "false" or "0", as in every query of
// the API.
func setOption(field reflect.Value, values []string) error {
	switch field.Kind() {
	case reflect.String:
		field.SetString(values[0])
	case reflect.Bool:
		field.SetBool(values[0] != "0" && !strings.EqualFold(values[0], "false"))
	case reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(values[0], 10, field.Type().Bits())
		if err != nil {
			return errors.New("not a number")
		}
		field.SetInt(n)
	case reflect.Slice:
		return setOptions(field, values)
	default:
		return fmt.Errorf("a %s cannot be given in a query", field.Type())
	}
	return nil
}

func setOptions(field reflect.Value, values []string) error {
	numbers := field.Type().Elem().Kind() != reflect.String
	out := reflect.MakeSlice(field.Type(), 0, len(values))
	for _, text := range values {
		parts := []string{text}
		if numbers {
			parts = strings.Split(text, ",")
		}
		for _, part := range parts {
			one := reflect.New(field.Type().Elem()).Elem()
			if err := setOption(one, []string{part}); err != nil {
				return err
			}
			out = reflect.Append(out, one)
		}
	}
	field.Set(out)
	return nil
}
