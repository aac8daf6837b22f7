"""meshtf-launch: many processes of one program, on one machine or on several."""
