# SPDX-License-Identifier: Apache-2.0
# Make a C string literal of a text, for #include. A line with the licence is left out.
/^# SPDX/d
s/[\\"]/\\&/g
s/.*/"&\\n"/
