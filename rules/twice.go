package rules

import (
	"encoding/json"
	"errors"
)

var errTwiceNamed = errors.New("it stands twice")

// twice finds a name that an object in a valid value has twice. Package json would take the last one, or what of the first one the
// last leaves out, so that a limit holds that nobody wrote.
func twice(d *json.Decoder) (field string, err error) {
	open, err := d.Token()
	if _, ok := open.(json.Delim); err != nil || !ok {
		return "", err
	}
	names := map[string]bool{}
	for d.More() {
		if open == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return "", err
			}
			field := name.(string)
			if names[field] {
				return field, errTwiceNamed
			}
			names[field] = true
		}
		if field, err := twice(d); err != nil {
			return field, err
		}
	}
	_, err = d.Token()
	return "", err
}

// once is the rules of a file, which a second list does not replace.
type once []json.RawMessage

// UnmarshalJSON takes the first list and refuses another.
func (o *once) UnmarshalJSON(data []byte) error {
	if *o != nil {
		return errors.New("rules: two lists of rules")
	}
	return json.Unmarshal(data, (*[]json.RawMessage)(o))
}
